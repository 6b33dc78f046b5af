// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/weighted_reduce.h"

#include <algorithm>
#include <array>

#include "tileops/cpu/parallel.h"
#include "tileops/ops/moe/elements.h"

namespace tileops {
namespace {

constexpr int64_t kChunk = 512;  // columns of a task

/// Calls visit(elements, convert) with the row's elements as their own type.
template <class Visit>
void with_elements(DType dtype, const std::byte* data, Visit&& visit) {
  const auto* bits = reinterpret_cast<const uint16_t*>(data);
  switch (dtype) {
    case DType::kF32:
      return visit(reinterpret_cast<const float*>(data), [](float x) { return x; });
    case DType::kBF16:
      return visit(bits, [](uint16_t x) { return bf16_to_f32(x); });
    default:
      return visit(bits, [](uint16_t x) { return f16_to_f32(x); });
  }
}

void add_scaled(DType dtype, const std::byte* row, int64_t stride, float weight, int64_t size,
                float* sums) {
  with_elements(dtype, row, [&](const auto* elements, auto&& convert) {
    if (stride == 1) {
      for (int64_t i = 0; i < size; ++i) sums[i] += weight * convert(elements[i]);
    } else {
      for (int64_t i = 0; i < size; ++i) sums[i] += weight * convert(elements[i * stride]);
    }
  });
}

void store_scaled(DType dtype, std::byte* out, int64_t stride, float scale, int64_t size,
                  const float* sums) {
  auto* bits = reinterpret_cast<uint16_t*>(out);
  for (int64_t i = 0; i < size; ++i) {
    const float value = scale * sums[i];
    if (dtype == DType::kF32)
      reinterpret_cast<float*>(out)[i * stride] = value;
    else
      bits[i * stride] = dtype == DType::kBF16 ? f32_to_bf16(value) : f32_to_f16(value);
  }
}

}  // namespace

void weighted_reduce(const Tensor& rows, const RowMatrix& matrix, const Tensor& topk_weights,
                     const Tensor& row_of_route, float scale, const Tensor& out) {
  const int64_t num_tokens = topk_weights.shape()[0], top_k = topk_weights.shape()[1];
  const int64_t num_chunks = (matrix.num_columns + kChunk - 1) / kChunk;
  const auto* weights = topk_weights.data_as<float>();
  const auto* index = row_of_route.data_as<int32_t>();
  cpu::parallel_for(num_tokens * num_chunks, 8, [&](int64_t begin, int64_t end) {
    std::array<float, kChunk> sums;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t token = task / num_chunks, column = task % num_chunks * kChunk;
      const int64_t size = std::min(kChunk, matrix.num_columns - column);
      std::fill_n(sums.begin(), size, 0.0f);
      for (int64_t k = 0; k < top_k; ++k) {
        const int64_t row = index[(token * top_k + k) * row_of_route.strides()[0]];
        if (row < 0 || row >= matrix.num_rows) continue;
        const float weight =
            weights[token * topk_weights.strides()[0] + k * topk_weights.strides()[1]];
        add_scaled(rows.dtype(),
                   element_at(rows, matrix.offset(row) + column * matrix.column_stride),
                   matrix.column_stride, weight, size, sums.data());
      }
      const Strides& strides = out.strides();
      store_scaled(out.dtype(), element_at(out, token * strides[0] + column * strides[1]),
                   strides[1], scale, size, sums.data());
    }
  });
}

}  // namespace tileops
