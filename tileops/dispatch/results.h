// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <initializer_list>
#include <span>

#include "tileops/core/error.h"
#include "tileops/core/tensor.h"

namespace tileops {

/// What a call returns: its outputs in the signature's order, held inline. An output that the call
/// leaves out is an absent Tensor.
class Results {
 public:
  static constexpr int kMaxResults = 6;

  Results() = default;
  Results(std::initializer_list<Tensor> tensors) {
    for (const Tensor& tensor : tensors) push_back(tensor);
  }
  void push_back(Tensor tensor) {
    if (size_ == kMaxResults) throw Error(ErrorKind::kInternal, "an op returns at most 6 tensors");
    tensors_[static_cast<size_t>(size_++)] = std::move(tensor);
  }
  int size() const { return size_; }
  const Tensor& operator[](int i) const { return tensors_[static_cast<size_t>(i)]; }
  const Tensor* begin() const { return tensors_.data(); }
  const Tensor* end() const { return tensors_.data() + size_; }
  std::span<const Tensor> span() const { return {tensors_.data(), static_cast<size_t>(size_)}; }

 private:
  std::array<Tensor, kMaxResults> tensors_;
  int size_ = 0;
};

}  // namespace tileops
