# SPDX-License-Identifier: Apache-2.0
# The device code that is embedded in the library as text, for NVRTC.
set(TILEOPS_DEVICE_FILES
  ${PROJECT_SOURCE_DIR}/tileops/device/epilogue/activation.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/epilogue/transposed_store.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/mma/wgmma.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/pipeline/ring.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/ptx/convert.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/ptx/ints.h
  ${PROJECT_SOURCE_DIR}/tileops/device/ptx/mbarrier.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/ptx/memory.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/ptx/threads.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/ptx/tma.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/skeleton/gather_loader.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/skeleton/strided_loader.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/skeleton/tma_loader.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/skeleton/weights_on_m.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/tile/groups.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/tile/partials.cuh
  ${PROJECT_SOURCE_DIR}/tileops/device/tile/work.cuh
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/fused_topk/fused_topk_sm90.cuh
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/fused_topk/fused_topk_sm90_params.h
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/grouped_gemm/grouped_gemm_sm90.cuh
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_params.h
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/post_permute/post_permute_sm90.cuh
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/post_permute/post_permute_sm90_params.h
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/pre_permute/pre_permute_sm90.cuh
  ${PROJECT_SOURCE_DIR}/tileops/ops/moe/pre_permute/pre_permute_sm90_params.h)
