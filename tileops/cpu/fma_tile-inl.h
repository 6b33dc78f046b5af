// SPDX-License-Identifier: Apache-2.0
// Block of rows times a panel: weights widened in registers, float32 FMA.
#if defined(TILEOPS_CPU_FMA_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEOPS_CPU_FMA_TILE_INL_H_
#undef TILEOPS_CPU_FMA_TILE_INL_H_
#else
#define TILEOPS_CPU_FMA_TILE_INL_H_
#endif

#include <utility>

#include "tileops/cpu/convert-inl.h"
#include "tileops/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tileops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Accumulators of rows x 2 vectors, 2 weight vectors and a broadcast fill 32 registers, or 16.
constexpr int kFmaRows = kLanes == 16 ? 12 : 6;
constexpr int kLineFloats = 16;  // of packed rows: one line holds 16 k of one row

/// Weight vectors of one k for two vectors of columns.
struct WeightPair {
  Vf left, right;
};

/// kHalf selects the k of a line's pair; `line` points at the first of the two vectors' columns.
template <DType kB, int kHalf>
HWY_INLINE WeightPair load_weights(const std::byte* line, int64_t right_offset) {
  if constexpr (kB == DType::kBF16) {
    const auto left = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(line));
    const auto right = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(line + right_offset));
    if constexpr (kHalf == 0) return {low_bf16(left), low_bf16(right)};
    return {high_bf16(left), high_bf16(right)};
  } else {
    constexpr int64_t kHalfBytes = kB == DType::kF16 ? 32 : 2 * kLineBytes;
    return {load_f32<kB>(line + kHalf * kHalfBytes),
            load_f32<kB>(line + right_offset + kHalf * kHalfBytes)};
  }
}

// Always two fetches, the second of the same line where a step is one line: cheaper than a branch.
HWY_INLINE void prefetch_to_l2(const std::byte* data, int64_t step) {
  __builtin_prefetch(data, 0, 2);
  __builtin_prefetch(data + step / 2, 0, 2);
}

template <int kRows, DType kB, int kHalf>
HWY_INLINE void multiply_k(const float* a, const std::byte* line, int64_t right_offset,
                           Vf (&sums)[kRows][2]) {
  const F32 d;
  const WeightPair w = load_weights<kB, kHalf>(line, right_offset);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const Vf x = hn::Set(d, a[r * kLineFloats + kHalf]);
    sums[r][0] = hn::MulAdd(x, w.left, sums[r][0]);
    sums[r][1] = hn::MulAdd(x, w.right, sums[r][1]);
  }
}

template <int kRows, DType kB>
HWY_NOINLINE void fma_tile_rows(const TileArgs& t) {
  const F32 d;
  constexpr int64_t kColumnBytes = kB == DType::kF16 ? 2 : 4;
  constexpr int64_t kStepBytes = kB == DType::kF32 ? 4 * kLineBytes : 2 * kLineBytes;  // of 2 k
  constexpr int64_t kRightOffset = kLanes == 16 ? kLineBytes : kLanes * kColumnBytes;
  for (int64_t col = 0; col < kPanelColumns; col += 2 * kLanes) {
    const float* a = reinterpret_cast<const float*>(t.a);
    const std::byte* b = t.b + col / 16 * kLineBytes + col % 16 * kColumnBytes;
    float* c = t.c + col;
    Vf sums[kRows][2];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = t.accumulate ? hn::LoadU(d, c + r * t.ldc) : hn::Zero(d);
      sums[r][1] = t.accumulate ? hn::LoadU(d, c + r * t.ldc + kLanes) : hn::Zero(d);
    }
    const std::byte* prefetch = t.prefetch;
    const int64_t prefetch_step = col == 0 ? t.prefetch_step : 0;
    for (int64_t k = 0; k < t.k; k += kLineFloats) {
      for (int kk = 0; kk < kLineFloats; kk += 2) {
        multiply_k<kRows, kB, 0>(a + kk, b, kRightOffset, sums);
        multiply_k<kRows, kB, 1>(a + kk, b, kRightOffset, sums);
        prefetch_to_l2(prefetch, prefetch_step);
        prefetch += prefetch_step;
        b += kStepBytes;
      }
      a += kRows * kLineFloats;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(sums[r][0], d, c + r * t.ldc);
      hn::StoreU(sums[r][1], d, c + r * t.ldc + kLanes);
    }
  }
}

template <DType kB>
void fma_tile(int rows, const TileArgs& args) {
  using Fn = void (*)(const TileArgs&);
  static constexpr auto kTable = []<size_t... kI>(std::index_sequence<kI...>) {
    return std::array<Fn, sizeof...(kI)>{fma_tile_rows<kI + 1, kB>...};
  }
  (std::make_index_sequence<kFmaRows>());
  kTable[static_cast<size_t>(rows - 1)](args);
}

}  // namespace HWY_NAMESPACE
}  // namespace tileops::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
