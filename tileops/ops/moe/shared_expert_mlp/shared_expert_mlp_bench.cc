// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_op.h"

#include "tests/support/workload_bench.h"

namespace tileops {
namespace {

const bool kRegistered = testing::register_workload_benches<SharedExpertMLPFwdOp>(
    {"deepseek-v3-t1", "deepseek-v3-t32", "glm-4.5-t32"});

}  // namespace
}  // namespace tileops
