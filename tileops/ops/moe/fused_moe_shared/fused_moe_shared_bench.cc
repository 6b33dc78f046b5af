// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_moe_shared/fused_moe_shared_op.h"

#include "tests/support/workload_bench.h"

namespace tileops {
namespace {

const bool kRegistered =
    testing::register_workload_benches<FusedMoESharedExpertFwdOp>({"glm-4.5-t1"});

}  // namespace
}  // namespace tileops
