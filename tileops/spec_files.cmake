# SPDX-License-Identifier: Apache-2.0
# The spec files that are embedded in the library: types, then one line per op.
set(TILEOPS_SPEC_FILES
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/types.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/grouped_gemm/grouped_gemm.yaml
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/expert_mlp/expert_mlp.yaml)
