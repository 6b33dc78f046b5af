// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/register.h"

#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"
#include "tileops/ops/moe/fused_experts/fused_experts_op.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"
#include "tileops/ops/moe/fused_moe_shared/fused_moe_shared_op.h"
#include "tileops/ops/moe/fused_topk/fused_topk_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_op.h"
#include "tileops/ops/moe/permute_align/permute_align_op.h"
#include "tileops/ops/moe/post_permute/post_permute_op.h"
#include "tileops/ops/moe/pre_permute/pre_permute_op.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_op.h"

namespace tileops {

void register_ops() {
  FusedTopKFwdOp::op_class();
  MoEPermuteAlignFwdOp::op_class();
  MoEPrePermuteFwdOp::op_class();
  MoEGroupedGemmFwdOp::op_class();
  MoEExpertMLPFwdOp::op_class();
  MoEPostPermuteFwdOp::op_class();
  IndexedExpertMLPFwdOp::op_class();
  FusedMoEExpertsFwdOp::op_class();
  SharedExpertMLPFwdOp::op_class();
  FusedMoEFwdOp::op_class();
  FusedMoESharedExpertFwdOp::op_class();
}

}  // namespace tileops
