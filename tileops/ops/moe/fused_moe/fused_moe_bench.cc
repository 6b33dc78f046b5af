// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"

#include "tests/support/workload_bench.h"

namespace tileops {
namespace {

const bool kRegistered = testing::register_workload_benches<FusedMoEFwdOp>(
    {"qwen3-30b-a3b-t1", "qwen3-30b-a3b-t32", "qwen3-30b-a3b-t4096"});

}  // namespace
}  // namespace tileops
