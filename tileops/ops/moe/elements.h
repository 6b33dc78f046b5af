// SPDX-License-Identifier: Apache-2.0
// Elements of CPU tensors by their offset from the first one, in elements; facts of strides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tileops/core/tensor.h"

namespace tileops {

inline std::byte* element_at(const Tensor& tensor, int64_t offset) {
  return tensor.data_as<std::byte>() + offset * dtype_bytes(tensor.dtype());
}
inline double load_at(const Tensor& tensor, int64_t offset) {
  return load_element(tensor.dtype(), element_at(tensor, offset));
}
inline void store_at(const Tensor& tensor, int64_t offset, double value) {
  store_element(tensor.dtype(), element_at(tensor, offset), value);
}
/// Element (i, j) of an int32 matrix.
inline int32_t int32_at(const Tensor& matrix, int64_t i, int64_t j) {
  return matrix.data_as<int32_t>()[i * matrix.strides()[0] + j * matrix.strides()[1]];
}

/// Whether the last dimension has unit stride, or no stride that matters.
inline bool is_inner_contiguous(const Tensor& tensor) {
  const int last = tensor.rank() - 1;
  return tensor.shape()[last] <= 1 || tensor.strides()[last] == 1;
}

/// Whether elements of an outer dimension share memory.
inline bool is_expanded(const Tensor& tensor) {
  for (int i = 0; i + 1 < tensor.rank(); ++i) {
    if (tensor.shape()[i] > 1 && tensor.strides()[i] == 0) return true;
  }
  return false;
}

/// The largest power of two up to 16 that divides the address and every outer stride, in bytes.
inline int64_t alignment_of(const Tensor& tensor) {
  auto bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(tensor.data()));
  for (int i = 0; i + 1 < tensor.rank(); ++i) {
    bits |= static_cast<uint64_t>(tensor.strides()[i] * dtype_bytes(tensor.dtype()));
  }
  int64_t alignment = 1;
  while (alignment < 16 && (bits & static_cast<uint64_t>(alignment)) == 0) alignment *= 2;
  return alignment;
}

}  // namespace tileops
