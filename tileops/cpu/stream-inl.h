// SPDX-License-Identifier: Apache-2.0
// Few rows times unpacked weights: dot products along K, each weight read once.
#if defined(TILEOPS_CPU_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEOPS_CPU_STREAM_INL_H_
#undef TILEOPS_CPU_STREAM_INL_H_
#else
#define TILEOPS_CPU_STREAM_INL_H_
#endif

#include <array>
#include <cstring>
#include <utility>

#include "hwy/cache_control.h"
#include "tileops/cpu/convert-inl.h"
#include "tileops/cpu/kernels.h"
#include "tileops/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tileops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kMaxStreamRows = 8;
constexpr int kStreamStep = 2 * kLanes;  // elements of K that two vectors hold

struct VectorPair {
  Vf first, second;
};

/// 2 * kLanes weights; bf16 as even and odd elements, others in order.
template <DType kB>
HWY_INLINE VectorPair load_step(const std::byte* src) {
  if constexpr (kB == DType::kBF16) {
    const auto pairs = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(src));
    return {low_bf16(pairs), high_bf16(pairs)};
  } else {
    constexpr int64_t kBytes = kB == DType::kF32 ? 4 : 2;
    return {load_f32<kB>(src), load_f32<kB>(src + kLanes * kBytes)};
  }
}

/// [k / step][rows][step] float32, k padded to 32; within a step as load_step orders the weights.
void pack_stream_rows(const RowBlock& block, DType weight_dtype, float* out) {
  with_dtype(block.rows->dtype, [&]<DType kT>() HWY_ATTR {
    for (int r = 0; r < block.num_rows; ++r) {
      const std::byte* row = row_data(*block.rows, block.row_begin + r);
      for (int64_t k = 0; k < stream_row_elements(block.k); k += kStreamStep) {
        float* dst = out + k * block.num_rows + r * kStreamStep;
        float values[kStreamStep];
        convert_elements<kT, kStreamStep>(row, block.rows->col_stride, k, block.k - k, values);
        for (int i = 0; i < kLanes; ++i) {
          const bool split = weight_dtype == DType::kBF16;
          dst[i] = values[split ? 2 * i : i];
          dst[kLanes + i] = values[split ? 2 * i + 1 : kLanes + i];
        }
      }
    }
  });
}

template <int kRows, int kCols, DType kB>
HWY_INLINE void stream_step(const float* a, const std::byte* const (&weights)[kCols], int64_t byte,
                            Vf (&sums)[kCols][kRows]) {
  const F32 d;
#pragma GCC unroll 4
  for (int j = 0; j < kCols; ++j) {
    const VectorPair w = load_step<kB>(weights[j] + byte);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sums[j][r] = hn::MulAdd(hn::LoadU(d, a + r * kStreamStep), w.first, sums[j][r]);
      sums[j][r] = hn::MulAdd(hn::LoadU(d, a + r * kStreamStep + kLanes), w.second, sums[j][r]);
    }
  }
}

/// kCols columns; `next` are the columns after them, fetched meanwhile.
template <int kRows, int kCols, DType kB>
HWY_INLINE void stream_columns(const StreamArgs& s, const std::byte* const* columns,
                               const std::byte* const* next, float* c) {
  constexpr int64_t kStepBytes = kStreamStep * (kB == DType::kF32 ? 4 : 2);
  const F32 d;
  Vf sums[kCols][kRows];
  const std::byte* weights[kCols];
#pragma GCC unroll 4
  for (int j = 0; j < kCols; ++j) {
    weights[j] = columns[j];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[j][r] = hn::Zero(d);
  }
  const float* a = s.a;
  const int64_t whole_steps = s.k / kStreamStep;
  for (int64_t step = 0; step < whole_steps; ++step) {
    const int64_t byte = step * kStepBytes;
    if (byte % kLineBytes == 0) {
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) __builtin_prefetch(next[j] + byte, 0, 2);
    }
    stream_step<kRows, kCols, kB>(a, weights, byte, sums);
    a += kRows * kStreamStep;
  }
  if (whole_steps * kStreamStep < s.k) {
    const int64_t byte = whole_steps * kStepBytes;
    const int64_t left = s.k * (kB == DType::kF32 ? 4 : 2) - byte;
    std::byte tails[kCols][kStepBytes] = {};
    for (int j = 0; j < kCols; ++j) {
      std::memcpy(tails[j], weights[j] + byte, static_cast<size_t>(left));
      weights[j] = tails[j];
    }
    stream_step<kRows, kCols, kB>(a, weights, 0, sums);
  }
  for (int j = 0; j < kCols; ++j) {
    for (int r = 0; r < kRows; ++r) {
      c[r * s.ldc + j] = hn::GetLane(hn::SumOfLanes(d, sums[j][r]));
    }
  }
}

template <int kRows, DType kB>
HWY_NOINLINE void stream_rows(const StreamArgs& s) {
  constexpr int kCols = kLanes == 16 ? (kRows <= 4 ? 4 : 2) : (kRows <= 2 ? 4 : kRows <= 4 ? 2 : 1);
  for (int64_t col = 0; col < s.num_columns; col += kCols) {
    const std::byte* const* columns = s.columns + col;
    const std::byte* const* next = col + kCols < s.num_columns && columns[2 * kCols - 1] != nullptr
                                       ? columns + kCols
                                       : columns;
    if (columns[kCols - 1] != nullptr) {
      stream_columns<kRows, kCols, kB>(s, columns, next, s.c + col);
      continue;
    }
    for (int j = 0; j < kCols; ++j) {
      if (columns[j] != nullptr) {
        stream_columns<kRows, 1, kB>(s, columns + j, columns + j, s.c + col + j);
      } else {
        for (int r = 0; r < kRows; ++r) s.c[r * s.ldc + col + j] = 0.0f;
      }
    }
  }
}

void stream(const StreamArgs& args) {
  with_dtype(args.dtype, [&]<DType kB>() HWY_ATTR {
    using Fn = void (*)(const StreamArgs&);
    static constexpr auto kTable = []<size_t... kI>(std::index_sequence<kI...>) {
      return std::array<Fn, sizeof...(kI)>{stream_rows<kI + 1, kB>...};
    }
    (std::make_index_sequence<kMaxStreamRows>());
    kTable[static_cast<size_t>(args.num_rows - 1)](args);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tileops::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
