// SPDX-License-Identifier: Apache-2.0
// Packing of rows and of weight panels.
#if defined(TILEOPS_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEOPS_CPU_PACK_INL_H_
#undef TILEOPS_CPU_PACK_INL_H_
#else
#define TILEOPS_CPU_PACK_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "tileops/cpu/convert-inl.h"
#include "tileops/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tileops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline const std::byte* row_data(const RowsView& rows, int64_t row) {
  const int64_t source = rows.index != nullptr ? rows.index[row] : row;
  return static_cast<const std::byte*>(rows.data) +
         source * rows.row_stride * (rows.dtype == DType::kF32 ? 4 : 2);
}

/// count elements of a row from element k on, padded with zeros to kPadded, as float32.
template <DType kT, int kPadded>
HWY_INLINE void convert_elements(const std::byte* row, int64_t col_stride, int64_t k, int64_t count,
                                 float* out) {
  constexpr int64_t kBytes = kT == DType::kF32 ? 4 : 2;
  if (col_stride == 1 && count >= kPadded) {
    for (int i = 0; i < kPadded; i += kLanes) {
      hn::StoreU(load_f32<kT>(row + (k + i) * kBytes), F32(), out + i);
    }
    return;
  }
  for (int i = 0; i < kPadded; ++i) {
    out[i] = i < count ? load_scalar<kT>(row, (k + i) * col_stride) : 0.0f;
  }
}

/// [k / 16][rows][16] float32, k padded to 32.
void pack_rows_f32(const RowBlock& block, std::byte* out) {
  with_dtype(block.rows->dtype, [&]<DType kT>() HWY_ATTR {
    float* dst = reinterpret_cast<float*>(out);
    const int64_t padded = stream_row_elements(block.k);
    for (int r = 0; r < block.num_rows; ++r) {
      const std::byte* row = row_data(*block.rows, block.row_begin + r);
      for (int64_t k = 0; k < padded; k += 16) {
        convert_elements<kT, 16>(row, block.rows->col_stride, k, block.k - k,
                                 dst + k * block.num_rows + r * 16);
      }
    }
  });
}

// Columns whose 32-bit words are transposed together: more would need more rows than a set of the
// first-level cache has ways, since rows are often a multiple of 4 KiB apart.
using Words = hn::CappedTag<uint32_t, 8>;
constexpr int kGroup = static_cast<int>(hn::MaxLanes(Words()));
constexpr int kPackWords = 64;  // of each row at a time

/// One word of kGroup columns into their line; f16 pairs are split into the line's halves.
template <bool kSplitHalves>
HWY_INLINE void store_words(hn::Vec<Words> words, std::byte* line) {
  if constexpr (kSplitHalves) {
    const hn::Rebind<uint16_t, Words> d16;
    hn::StoreU(hn::TruncateTo(d16, words), d16, reinterpret_cast<uint16_t*>(line));
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(words)), d16,
               reinterpret_cast<uint16_t*>(line + 32));
  } else {
    hn::StoreU(words, Words(), reinterpret_cast<uint32_t*>(line));
  }
}

#if HWY_TARGET == HWY_SCALAR

template <bool kSplitHalves>
void transpose_words(const std::byte* const (&rows)[kGroup], int num_words, std::byte* out) {
  for (int w = 0; w < num_words; ++w) {
    const auto word = hn::LoadU(Words(), reinterpret_cast<const uint32_t*>(rows[0]) + w);
    store_words<kSplitHalves>(word, out + w * 2 * kLineBytes);
  }
}

#else

/// Four words of row i, and of row i + 4 in the upper half where there are eight rows.
HWY_INLINE hn::Vec<Words> load_words(const std::byte* const (&rows)[kGroup], int i, int w) {
  const hn::CappedTag<uint32_t, 4> block;
  const auto lower = hn::LoadU(block, reinterpret_cast<const uint32_t*>(rows[i]) + w);
#if HWY_TARGET <= HWY_AVX2
  const auto* upper = reinterpret_cast<const uint32_t*>(rows[i + 4]) + w;
  return hn::Combine(Words(), hn::LoadU(block, upper), lower);
#else
  return lower;
#endif
}

/// Word w of all rows to out + w * 2 lines.
template <bool kSplitHalves>
HWY_INLINE void transpose_words(const std::byte* const (&rows)[kGroup], int num_words,
                                std::byte* out) {
  const Words d;
  const hn::Repartition<uint64_t, Words> d64;
  for (int w = 0; w < num_words; w += 4) {
    const auto r0 = load_words(rows, 0, w), r1 = load_words(rows, 1, w);
    const auto r2 = load_words(rows, 2, w), r3 = load_words(rows, 3, w);
    const auto a = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
    const auto b = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto e = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto f = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    std::byte* line = out + w * 2 * kLineBytes;
    store_words<kSplitHalves>(hn::BitCast(d, hn::InterleaveLower(d64, a, b)), line);
    store_words<kSplitHalves>(hn::BitCast(d, hn::InterleaveUpper(d64, a, b)),
                              line + 2 * kLineBytes);
    store_words<kSplitHalves>(hn::BitCast(d, hn::InterleaveLower(d64, e, f)),
                              line + 4 * kLineBytes);
    store_words<kSplitHalves>(hn::BitCast(d, hn::InterleaveUpper(d64, e, f)),
                              line + 6 * kLineBytes);
  }
}

#endif

/// kGroup rows of at most kPackWords words from byte `at` on; what lies beyond a row is zero.
template <bool kSplitHalves>
HWY_INLINE void pack_group(const std::byte* const* rows, int64_t at, int64_t row_bytes,
                           int num_words, std::byte* out) {
  alignas(64) std::byte padded[kGroup][kPackWords * 4];
  const std::byte* sources[kGroup];
  for (int i = 0; i < kGroup; ++i) {
    const int64_t valid = rows[i] == nullptr ? 0 : row_bytes - at;
    sources[i] = rows[i] + at;
    if (valid >= 4 * num_words) continue;
    std::memset(padded[i], 0, sizeof(padded[i]));
    if (valid > 0) std::memcpy(padded[i], rows[i] + at, static_cast<size_t>(valid));
    sources[i] = padded[i];
  }
  transpose_words<kSplitHalves>(sources, num_words, out);
}

void pack_panel_lines(const std::byte* const* rows, DType dtype, int64_t num_k, int64_t k_padded,
                      std::byte* out) {
  const bool split = dtype == DType::kF16;
  const int64_t element_bytes = dtype == DType::kF32 ? 4 : 2;
  const int64_t row_bytes = num_k * element_bytes;
  const int64_t num_words = k_padded * element_bytes / 4;
  for (int64_t w = 0; w < num_words; w += kPackWords) {
    const int count = static_cast<int>(std::min<int64_t>(num_words - w, kPackWords));
    for (int64_t col = 0; col < kPanelColumns; col += kGroup) {
      std::byte* lines =
          out + w * 2 * kLineBytes + col / 16 * kLineBytes + col % 16 * (split ? 2 : 4);
      if (split) {
        pack_group<true>(rows + col, 4 * w, row_bytes, count, lines);
      } else {
        pack_group<false>(rows + col, 4 * w, row_bytes, count, lines);
      }
    }
  }
}

/// kLanes columns of one k, from column i on, 16 bits each: of a side that lies side by side, or of
/// one whose columns alternate with the other's.
template <bool kInterleaved, bool kRight>
HWY_INLINE hn::Vec<U32> load_columns(const std::byte* row, int i) {
  if constexpr (!kInterleaved) {
    return hn::PromoteTo(U32(), hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(row) + i));
  } else {
    const auto pairs = hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(row) + i);
    return kRight ? hn::ShiftRight<16>(pairs) : hn::And(pairs, hn::Set(U32(), 0xffffu));
  }
}

/// A line of one side: 16 columns of two k. The columns after them, which the next panel takes, are
/// fetched meanwhile: rows are too far apart for the core to do so.
template <DType kB, bool kInterleaved, bool kRight>
HWY_INLINE void store_column_line(const std::byte* first, const std::byte* second,
                                  std::byte* line) {
  __builtin_prefetch(first + kLineBytes, 0, 2);
  __builtin_prefetch(second + kLineBytes, 0, 2);
  for (int i = 0; i < 16; i += kLanes) {
    const auto a = load_columns<kInterleaved, kRight>(first, i);
    const auto b = load_columns<kInterleaved, kRight>(second, i);
    if constexpr (kB == DType::kBF16) {
      hn::StoreU(hn::Or(a, hn::ShiftLeft<16>(b)), U32(), reinterpret_cast<uint32_t*>(line) + i);
    } else {
      hn::StoreU(hn::TruncateTo(U16(), a), U16(), reinterpret_cast<uint16_t*>(line) + i);
      hn::StoreU(hn::TruncateTo(U16(), b), U16(), reinterpret_cast<uint16_t*>(line) + 16 + i);
    }
  }
}

template <bool kInterleaved>
HWY_INLINE void store_f32_columns(const std::byte* left, const std::byte* right, std::byte* line) {
  const auto* a = reinterpret_cast<const float*>(left);
  const auto* b = reinterpret_cast<const float*>(right);
  auto* out = reinterpret_cast<float*>(line);
  for (int i = 0; i < 16; ++i) {
    out[i] = kInterleaved ? a[2 * i] : a[i];
    out[16 + i] = kInterleaved ? a[2 * i + 1] : b[i];
  }
}

template <DType kB, bool kInterleaved>
void pack_column_lines_as(const ColumnPanel& p, std::byte* out) {
  alignas(64) static constexpr std::byte kZeros[32 * 4] = {};
  const auto row = [&p](const std::byte* side, int64_t k) {
    return k < p.num_k ? side + k * p.k_stride_bytes : kZeros;
  };
  if constexpr (kB == DType::kF32) {
    for (int64_t k = 0; k < p.k_padded; ++k, out += 2 * kLineBytes) {
      store_f32_columns<kInterleaved>(row(p.left, k), row(p.right, k), out);
    }
  } else {
    for (int64_t k = 0; k < p.k_padded; k += 2, out += 2 * kLineBytes) {
      store_column_line<kB, kInterleaved, false>(row(p.left, k), row(p.left, k + 1), out);
      const std::byte* right = kInterleaved ? p.left : p.right;
      store_column_line<kB, kInterleaved, true>(row(right, k), row(right, k + 1), out + kLineBytes);
    }
  }
}

void pack_column_lines(const ColumnPanel& panel, DType dtype, std::byte* out) {
  with_dtype(dtype, [&]<DType kB>() HWY_ATTR {
    if (panel.right == nullptr) {
      pack_column_lines_as<kB, true>(panel, out);
    } else {
      pack_column_lines_as<kB, false>(panel, out);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tileops::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
