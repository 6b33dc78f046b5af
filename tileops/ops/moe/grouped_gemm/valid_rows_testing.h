// SPDX-License-Identifier: Apache-2.0
// For tests: what a grouped GEMM specifies of a tensor of rows.
#pragma once

#include <vector>

#include "tileops/core/tensor.h"
#include "tileops/ops/moe/layout.h"

namespace tileops::testing {

/// The elements of the rows that belong to an expert, in order: they alone are specified.
inline std::vector<double> valid_rows(const MGroupedLayout& layout, const Tensor& metadata,
                                      int64_t num_experts, const Tensor& tensor) {
  const RowMatrix matrix = row_matrix(layout, tensor);
  std::vector<double> values;
  for (const ExpertRows& rows : expert_rows(layout, metadata, num_experts, matrix.num_rows)) {
    for (int64_t row = rows.row_begin; row < rows.row_begin + rows.num_rows; ++row) {
      for (int64_t c = 0; c < matrix.num_columns; ++c) {
        const int64_t offset = matrix.offset(row) + c * matrix.column_stride;
        values.push_back(load_element(
            tensor.dtype(), tensor.data_as<std::byte>() + offset * dtype_bytes(tensor.dtype())));
      }
    }
  }
  return values;
}

}  // namespace tileops::testing
