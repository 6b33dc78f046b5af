// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/permute_align/permute_align_op.h"

#include "tests/support/workload_bench.h"

namespace tileops {
namespace {

const bool kRegistered = testing::register_workload_benches<MoEPermuteAlignFwdOp>(
    {"qwen3-30b-a3b-t4096-uniform", "deepseek-v3-t32-uniform", "deepseek-v3-t4096-skewed"});

}  // namespace
}  // namespace tileops
