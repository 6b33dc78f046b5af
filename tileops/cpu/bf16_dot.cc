// SPDX-License-Identifier: Apache-2.0
// Block of rows times a panel with vdpbf16ps; in intrinsics, since Highway 1.0 has no name for it.
#include <array>
#include <utility>

#include "tileops/cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace tileops::cpu {
namespace {

#define TILEOPS_BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

constexpr int kMaxRows = 12;

template <int kRows>
TILEOPS_BF16_TARGET void dot_tile_rows(const TileArgs& t) {
  __m512 sums[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const float* c = t.c + r * t.ldc;
    sums[r][0] = t.accumulate ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
    sums[r][1] = t.accumulate ? _mm512_loadu_ps(c + 16) : _mm512_setzero_ps();
  }
  const std::byte* a = t.a;
  const std::byte* b = t.b;
  const std::byte* prefetch = t.prefetch;
  for (int64_t k = 0; k < t.k; k += kKAlign) {
    for (int pair = 0; pair < kKAlign / 2; ++pair) {
      _mm_prefetch(reinterpret_cast<const char*>(prefetch), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(prefetch + t.prefetch_step / 2), _MM_HINT_T1);
      prefetch += t.prefetch_step;
      const auto left = (__m512bh)_mm512_loadu_si512(b);
      const auto right = (__m512bh)_mm512_loadu_si512(b + kLineBytes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const int bits = *reinterpret_cast<const int*>(a + r * kLineBytes + pair * 4);
        const auto x = (__m512bh)_mm512_set1_epi32(bits);
        sums[r][0] = _mm512_dpbf16_ps(sums[r][0], x, left);
        sums[r][1] = _mm512_dpbf16_ps(sums[r][1], x, right);
      }
      b += 2 * kLineBytes;
    }
    a += kRows * kLineBytes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(t.c + r * t.ldc, sums[r][0]);
    _mm512_storeu_ps(t.c + r * t.ldc + 16, sums[r][1]);
  }
}

void dot_tile(int rows, const TileArgs& args) {
  using Fn = void (*)(const TileArgs&);
  static constexpr auto kTable = []<size_t... kI>(std::index_sequence<kI...>) {
    return std::array<Fn, sizeof...(kI)>{dot_tile_rows<kI + 1>...};
  }
  (std::make_index_sequence<kMaxRows>());
  kTable[static_cast<size_t>(rows - 1)](args);
}

}  // namespace

const MicroKernel& bf16_dot_kernel() {
  static const MicroKernel kernel = {
      .name = "avx512_bf16_dot",
      .max_rows = kMaxRows,
      .a_bytes_per_k = 2,
      .pack_rows = [](const RowBlock& b, std::byte* out) { pack_rows_bf16(b, b.num_rows, out); },
      .tile = dot_tile};
  return kernel;
}

}  // namespace tileops::cpu

#else

namespace tileops::cpu {
const MicroKernel& bf16_dot_kernel() {
  static const MicroKernel none;
  return none;
}
}  // namespace tileops::cpu

#endif
