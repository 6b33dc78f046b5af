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

#if HWY_TARGET == HWY_SCALAR

/// Four rows of 16 32-bit words -> word w of the four at out + w * 2 lines.
template <bool kSplitHalves>
void transpose_words(const std::byte* const (&rows)[4], std::byte* out) {
  for (int w = 0; w < 16; ++w) {
    for (int i = 0; i < 4; ++i) {
      std::byte* line = out + w * 2 * kLineBytes;
      if constexpr (kSplitHalves) {
        std::memcpy(line + 2 * i, rows[i] + 4 * w, 2);
        std::memcpy(line + 32 + 2 * i, rows[i] + 4 * w + 2, 2);
      } else {
        std::memcpy(line + 4 * i, rows[i] + 4 * w, 4);
      }
    }
  }
}

#else

template <bool kSplitHalves>
HWY_INLINE void store_words(hn::Vec<hn::FixedTag<uint32_t, 4> > words, std::byte* line) {
  const hn::FixedTag<uint32_t, 4> d;
  if constexpr (kSplitHalves) {
    const hn::FixedTag<uint16_t, 8> d16;
    const hn::FixedTag<uint64_t, 2> d64;
    const auto low = hn::And(words, hn::Set(d, 0xffffu));
    const auto high = hn::ShiftRight<16>(words);
    const hn::FixedTag<int32_t, 4> di;
    const auto halves = hn::BitCast(
        d64, hn::Combine(d16, hn::DemoteTo(hn::Half<decltype(d16)>(), hn::BitCast(di, high)),
                         hn::DemoteTo(hn::Half<decltype(d16)>(), hn::BitCast(di, low))));
    const uint64_t low_bits = hn::GetLane(halves);
    const uint64_t high_bits = hn::GetLane(hn::UpperHalf(hn::Half<decltype(d64)>(), halves));
    std::memcpy(line, &low_bits, 8);
    std::memcpy(line + 32, &high_bits, 8);
  } else {
    hn::StoreU(words, d, reinterpret_cast<uint32_t*>(line));
  }
}

/// Four rows of 16 32-bit words -> word w of the four at out + w * 2 lines.
template <bool kSplitHalves>
HWY_INLINE void transpose_words(const std::byte* const (&rows)[4], std::byte* out) {
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> d64;
  for (int w = 0; w < 16; w += 4) {
    const auto load = [&](int i) HWY_ATTR {
      return hn::LoadU(d, reinterpret_cast<const uint32_t*>(rows[i] + 4 * w));
    };
    const auto r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
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

void pack_panel_lines(const std::byte* const* rows, DType dtype, int64_t num_k, int64_t k_padded,
                      std::byte* out) {
  const int64_t element_bytes = dtype == DType::kF32 ? 4 : 2;
  const int64_t row_bytes = num_k * element_bytes;
  const int64_t column_bytes = dtype == DType::kF16 ? 2 : 4;
  for (int64_t byte = 0; byte < k_padded * element_bytes; byte += kLineBytes) {
    for (int64_t col = 0; col < kPanelColumns; col += 4) {
      alignas(64) std::byte padded[4][kLineBytes];
      const std::byte* sources[4];
      for (int i = 0; i < 4; ++i) {
        const std::byte* row = rows[col + i];
        const int64_t valid = row == nullptr ? 0 : std::min(row_bytes - byte, kLineBytes);
        sources[i] = row + byte;
        if (valid == kLineBytes) continue;
        std::memset(padded[i], 0, kLineBytes);
        if (valid > 0) std::memcpy(padded[i], row + byte, static_cast<size_t>(valid));
        sources[i] = padded[i];
      }
      std::byte* lines =
          out + byte / 4 * 2 * kLineBytes + col / 16 * kLineBytes + col % 16 * column_bytes;
      if (dtype == DType::kF16) {
        transpose_words<true>(sources, lines);
      } else {
        transpose_words<false>(sources, lines);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tileops::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
