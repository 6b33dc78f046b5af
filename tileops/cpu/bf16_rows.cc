// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "tileops/cpu/kernels.h"

namespace tileops::cpu {

void pack_rows_bf16(const RowBlock& block, int packed_rows, std::byte* out) {
  const RowsView& rows = *block.rows;
  for (int r = 0; r < packed_rows; ++r) {
    const int64_t row = block.row_begin + r;
    const bool is_row = r < block.num_rows;
    const int64_t source = is_row ? (rows.index != nullptr ? rows.index[row] : row) : 0;
    const uint16_t* src = static_cast<const uint16_t*>(rows.data) + source * rows.row_stride;
    for (int64_t k = 0; k < block.k; k += kKAlign) {
      std::byte* line = out + (k / kKAlign * packed_rows + r) * kLineBytes;
      const int64_t count = is_row ? std::min(block.k - k, kKAlign) : 0;
      if (rows.col_stride == 1 && count == kKAlign) {
        std::memcpy(line, src + k, kLineBytes);
        continue;
      }
      uint16_t values[kKAlign] = {};
      for (int64_t i = 0; i < count; ++i) values[i] = src[(k + i) * rows.col_stride];
      std::memcpy(line, values, kLineBytes);
    }
  }
}

}  // namespace tileops::cpu
