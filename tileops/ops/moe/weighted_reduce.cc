// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/weighted_reduce.h"

#include <algorithm>
#include <vector>

#include "tileops/cpu/parallel.h"
#include "tileops/cpu/weighted_sum.h"
#include "tileops/ops/moe/elements.h"

namespace tileops {
namespace {

constexpr int64_t kChunk = 512;  // columns of a task

/// Copies elements between strides, in elements.
void copy_strided(int64_t element_bytes, const std::byte* from, int64_t from_stride, std::byte* to,
                  int64_t to_stride, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    std::copy_n(from + i * from_stride * element_bytes, element_bytes,
                to + i * to_stride * element_bytes);
  }
}

/// Sums chunks of tokens on one thread; rows and outs that are no side-by-side elements go through
/// scratch, so that the bits do not depend on strides.
class Reducer {
 public:
  Reducer(const Tensor& rows, const RowMatrix& matrix, const Tensor& topk_weights,
          const Tensor& row_of_route, float scale, const Tensor& out)
      : rows_(rows),
        matrix_(matrix),
        topk_weights_(topk_weights),
        row_of_route_(row_of_route),
        scale_(scale),
        out_(out),
        row_bytes_(dtype_bytes(rows.dtype())),
        out_bytes_(dtype_bytes(out.dtype())) {
    const bool copies_rows = matrix.column_stride != 1;
    if (copies_rows)
      scratch_.resize(static_cast<size_t>(topk_weights.shape()[1] * kChunk * row_bytes_));
    if (out.strides()[1] != 1) out_scratch_.resize(static_cast<size_t>(kChunk * out_bytes_));
  }

  void reduce(int64_t token, int64_t column) {
    const int64_t size = std::min(kChunk, matrix_.num_columns - column);
    collect(token, column, size);
    const Strides& strides = out_.strides();
    std::byte* out = element_at(out_, token * strides[0] + column * strides[1]);
    std::byte* sums = out_scratch_.empty() ? out : out_scratch_.data();
    cpu::weighted_sum(
        {row_chunks_, weights_.data(), rows_.dtype(), size, scale_, sums, out_.dtype()});
    if (sums != out) copy_strided(out_bytes_, sums, 1, out, strides[1], size);
  }

 private:
  /// The chunk of each kept route of the token, and its weight.
  void collect(int64_t token, int64_t column, int64_t size) {
    row_chunks_.clear();
    weights_.clear();
    const int64_t top_k = topk_weights_.shape()[1];
    const Strides& strides = topk_weights_.strides();
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t at = (token * top_k + k) * row_of_route_.strides()[0];
      const int64_t row = row_of_route_.data_as<int32_t>()[at];
      if (row < 0 || row >= matrix_.num_rows) continue;
      const std::byte* chunk =
          element_at(rows_, matrix_.offset(row) + column * matrix_.column_stride);
      if (!scratch_.empty()) {
        std::byte* copy = scratch_.data() + k * kChunk * row_bytes_;
        copy_strided(row_bytes_, chunk, matrix_.column_stride, copy, 1, size);
        chunk = copy;
      }
      row_chunks_.push_back(chunk);
      weights_.push_back(topk_weights_.data_as<float>()[token * strides[0] + k * strides[1]]);
    }
  }

  const Tensor& rows_;
  const RowMatrix& matrix_;
  const Tensor& topk_weights_;
  const Tensor& row_of_route_;
  float scale_;
  const Tensor& out_;
  int64_t row_bytes_, out_bytes_;
  std::vector<const std::byte*> row_chunks_;
  std::vector<float> weights_;
  std::vector<std::byte> scratch_, out_scratch_;
};

}  // namespace

void weighted_reduce(const Tensor& rows, const RowMatrix& matrix, const Tensor& topk_weights,
                     const Tensor& row_of_route, float scale, const Tensor& out) {
  const int64_t num_tokens = topk_weights.shape()[0];
  const int64_t num_chunks = (matrix.num_columns + kChunk - 1) / kChunk;
  cpu::parallel_for(num_tokens * num_chunks, 16, [&](int64_t begin, int64_t end) {
    Reducer reducer(rows, matrix, topk_weights, row_of_route, scale, out);
    for (int64_t task = begin; task < end; ++task) {
      reducer.reduce(task / num_chunks, task % num_chunks * kChunk);
    }
  });
}

}  // namespace tileops
