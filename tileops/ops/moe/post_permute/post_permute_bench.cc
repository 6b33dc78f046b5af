// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/post_permute/post_permute_op.h"

#include "tests/support/workload_bench.h"

namespace tileops {
namespace {

const bool kRegistered = testing::register_workload_benches<MoEPostPermuteFwdOp>(
    {"qwen3-30b-a3b-t32-uniform", "qwen3-30b-a3b-t4096-uniform", "mixtral-8x7b-t4096-skewed"});

}  // namespace
}  // namespace tileops
