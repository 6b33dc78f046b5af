// SPDX-License-Identifier: Apache-2.0
// Block of rows times a panel: weights widened in registers, float32 FMA.
#if defined(TILEOPS_CPU_FMA_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEOPS_CPU_FMA_TILE_INL_H_
#undef TILEOPS_CPU_FMA_TILE_INL_H_
#else
#define TILEOPS_CPU_FMA_TILE_INL_H_
#endif

#include <algorithm>
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

/// Of K, where the columns of a panel that is read once take several passes: its weights stay in the
/// first cache, and each pass fetches its part of those after them, so that memory never waits.
constexpr int64_t kPassChunk = 128;

/// Vectors of columns that some rows take at once: the whole panel where the registers hold its
/// sums, so that a panel that comes from memory is read in order.
constexpr int vectors_at_once(int rows) {
  int vectors = 2;
  while (2 * vectors * kLanes <= kPanelColumns && 2 * vectors * rows <= 8) vectors *= 2;
  return vectors;
}

/// Bytes from a step of two k to the weights of a column.
template <DType kB>
constexpr int64_t column_offset(int64_t column) {
  return column / 16 * kLineBytes + column % 16 * (kB == DType::kF16 ? 2 : 4);
}

/// Weights of one k for a vector of columns; kHalf selects the k of a line's pair.
template <DType kB, int kHalf>
HWY_INLINE Vf load_weights(const std::byte* columns) {
  if constexpr (kB == DType::kBF16) {
    const auto pairs = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(columns));
    return kHalf == 0 ? low_bf16(pairs) : high_bf16(pairs);
  } else {
    constexpr int64_t kHalfBytes = kB == DType::kF16 ? 32 : 2 * kLineBytes;
    return load_f32<kB>(columns + kHalf * kHalfBytes);
  }
}

// Always two fetches, the second of the same line where a step is one line: cheaper than a branch
// where a step has many products.
HWY_INLINE void prefetch_to_l2(const std::byte* data, int64_t step) {
  __builtin_prefetch(data, 0, 2);
  __builtin_prefetch(data + step / 2, 0, 2);
}

template <int kRows, int kVectors, DType kB, int kHalf>
HWY_INLINE void multiply_k(const float* a, const std::byte* columns, Vf (&sums)[kRows][kVectors]) {
  const F32 d;
  Vf weights[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    weights[v] = load_weights<kB, kHalf>(columns + column_offset<kB>(v * kLanes));
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const Vf x = hn::Set(d, a[r * kLineFloats + kHalf]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(x, weights[v], sums[r][v]);
  }
}

template <int kRows, DType kB>
HWY_NOINLINE void fma_tile_rows(const TileArgs& t) {
  const F32 d;
  constexpr int kVectors = vectors_at_once(kRows);
  constexpr int64_t kPassColumns = kVectors * kLanes;
  constexpr int64_t kStepBytes = kB == DType::kF32 ? 4 * kLineBytes : 2 * kLineBytes;  // of 2 k
  constexpr int64_t kPasses = kPanelColumns / kPassColumns;
  const bool reads_once = t.prefetch_step == 2 * kLineBytes;
  const int64_t chunk = kPasses > 1 && reads_once ? kPassChunk : t.k;
  const int64_t prefetch_step = t.prefetch_step / kPasses;
  for (int64_t begin = 0; begin < t.k; begin += chunk) {
    const int64_t end = std::min(begin + chunk, t.k);
    const bool accumulate = t.accumulate || begin > 0;
    for (int64_t col = 0; col < kPanelColumns; col += kPassColumns) {
      const float* a = reinterpret_cast<const float*>(t.a) + begin * kRows;
      const std::byte* b = t.b + begin / 2 * kStepBytes + column_offset<kB>(col);
      float* c = t.c + col;
      Vf sums[kRows][kVectors];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = accumulate ? hn::LoadU(d, c + r * t.ldc + v * kLanes) : hn::Zero(d);
        }
      }
      const std::byte* prefetch =
          t.prefetch + (begin * kPasses + (end - begin) * (col / kPassColumns)) / 2 * prefetch_step;
      for (int64_t k = begin; k < end; k += kLineFloats) {
        for (int kk = 0; kk < kLineFloats; kk += 2) {
          multiply_k<kRows, kVectors, kB, 0>(a + kk, b, sums);
          multiply_k<kRows, kVectors, kB, 1>(a + kk, b, sums);
          if (kRows > 2 || prefetch_step != 0) prefetch_to_l2(prefetch, prefetch_step);
          prefetch += prefetch_step;
          b += kStepBytes;
        }
        a += kRows * kLineFloats;
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, c + r * t.ldc + v * kLanes);
      }
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
