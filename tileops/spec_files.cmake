# SPDX-License-Identifier: Apache-2.0
# The spec files that are embedded in the library: types, then one line per op.
set(TILEOPS_SPEC_FILES
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/types.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/grouped_gemm/grouped_gemm.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/expert_mlp/expert_mlp.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/fused_topk/fused_topk.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/permute_align/permute_align.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/pre_permute/pre_permute.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/post_permute/post_permute.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/shared_expert_mlp/shared_expert_mlp.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/fused_experts/fused_experts.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/fused_moe/fused_moe.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/fused_moe_shared/fused_moe_shared.yaml)
