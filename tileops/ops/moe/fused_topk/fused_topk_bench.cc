// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_topk/fused_topk_op.h"

#include "tests/support/workload_bench.h"

namespace tileops {
namespace {

const bool kRegistered = testing::register_workload_benches<FusedTopKFwdOp>(
    {"qwen3-30b-a3b-t32", "qwen3-30b-a3b-t4096", "deepseek-v3-t4096", "kimi-k2-t4096"});

}  // namespace
}  // namespace tileops
