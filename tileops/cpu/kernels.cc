// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/kernels.h"

#include <array>

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#define HWY_COMPILE_ALL_ATTAINABLE
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tileops/cpu/kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "tileops/cpu/convert-inl.h"
#include "tileops/cpu/epilogue-inl.h"
#include "tileops/cpu/fma_tile-inl.h"
#include "tileops/cpu/pack-inl.h"
#include "tileops/cpu/stream-inl.h"
#include "tileops/cpu/weighted_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tileops::cpu {
namespace HWY_NAMESPACE {

template <DType kB>
constexpr MicroKernel make_fma(const char* name) {
  return {.name = name,
          .max_rows = kFmaRows,
          .a_bytes_per_k = sizeof(float),
          .pack_rows = pack_rows_f32,
          .tile = fma_tile<kB>};
}

constexpr IsaKernels make_kernels(const char* name, const char* fma_name) {
  return {.name = name,
          .fma = {make_fma<DType::kF32>(fma_name), make_fma<DType::kBF16>(fma_name),
                  make_fma<DType::kF16>(fma_name)},
          .max_stream_rows = kMaxStreamRows,
          .pack_stream_rows = pack_stream_rows,
          .stream = stream,
          .finish = finish,
          .pack_panel = pack_panel_lines,
          .pack_columns = pack_column_lines,
          .weighted_sum = weighted_sum_rows};
}

}  // namespace HWY_NAMESPACE
}  // namespace tileops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tileops::cpu {

const IsaKernels& isa_kernels(IsaLevel level) {
  // Made by the compiler: a level's functions must not run on a processor without it.
  static constexpr std::array<IsaKernels, 4> kKernels = {
    HWY_STATIC_DISPATCH(make_kernels)("baseline_stream", "baseline_fma"),
#if HWY_TARGETS & HWY_SSE4
    N_SSE4::make_kernels("sse4_stream", "sse4_fma"),
#endif
#if HWY_TARGETS & HWY_AVX2
    N_AVX2::make_kernels("avx2_stream", "avx2_fma"),
#endif
#if HWY_TARGETS & HWY_AVX3
    N_AVX3::make_kernels("avx512_stream", "avx512_fma"),
#endif
  };
  const size_t slot = level < IsaLevel::kAvx512 ? static_cast<size_t>(level) : 3;
  return kKernels[slot];
}

}  // namespace tileops::cpu
#endif
