// SPDX-License-Identifier: Apache-2.0
// TensorRefs: tensors that lie elsewhere.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "tileops/core/tensor.h"

namespace tileops {

/// A view of an array of tensors, or of tensors here and there by an array of pointers: a copy of a
/// Tensor costs two atomic operations. Valid as long as what it views.
class TensorRefs {
 public:
  TensorRefs() = default;
  TensorRefs(const Tensor* array, size_t size) : array_(array), size_(size) {}
  template <std::convertible_to<std::span<const Tensor>> Array>
  TensorRefs(Array&& array) {  // NOLINT: as `op.call({inputs, outs})` wants it
    const std::span<const Tensor> tensors = array;
    array_ = tensors.data();
    size_ = tensors.size();
  }
  template <std::convertible_to<std::span<const Tensor* const>> Pointers>
  TensorRefs(Pointers&& pointers) {  // NOLINT: the same
    const std::span<const Tensor* const> tensors = pointers;
    pointers_ = tensors.data();
    size_ = tensors.size();
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const Tensor& operator[](size_t i) const {
    return pointers_ != nullptr ? *pointers_[i] : array_[i];
  }

 private:
  const Tensor* array_ = nullptr;
  const Tensor* const* pointers_ = nullptr;  // null: the tensors are array_'s
  size_t size_ = 0;
};

}  // namespace tileops
