// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/register.h"

#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"

namespace tileops {

void register_ops() {
  MoEGroupedGemmFwdOp::op_class();
  MoEExpertMLPFwdOp::op_class();
}

}  // namespace tileops
