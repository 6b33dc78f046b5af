// SPDX-License-Identifier: Apache-2.0
// The MoE family, for users.
#pragma once

#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"
#include "tileops/ops/moe/fused_experts/fused_experts_op.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"
#include "tileops/ops/moe/fused_moe_shared/fused_moe_shared_op.h"
#include "tileops/ops/moe/fused_topk/fused_topk_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_op.h"
#include "tileops/ops/moe/packed_experts.h"
#include "tileops/ops/moe/permute_align/permute_align_op.h"
#include "tileops/ops/moe/post_permute/post_permute_op.h"
#include "tileops/ops/moe/pre_permute/pre_permute_op.h"
#include "tileops/ops/moe/prepare_finalize.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_op.h"
