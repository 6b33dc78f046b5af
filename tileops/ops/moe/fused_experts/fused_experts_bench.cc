// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_experts/fused_experts_op.h"

#include "tests/support/workload_bench.h"

namespace tileops {
namespace {

const bool kRegistered = testing::register_workload_benches<FusedMoEExpertsFwdOp>(
    {"qwen3-30b-a3b-t1-uniform", "qwen3-30b-a3b-t32-skewed", "qwen3-30b-a3b-t4096-uniform"});

}  // namespace
}  // namespace tileops
