// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <span>
#include <utility>

#include "tileops/core/error.h"
#include "tileops/core/inline_vector.h"
#include "tileops/core/tensor.h"

namespace tileops {

/// What a call returns: its outputs in the signature's order, held inline. An output that the call
/// leaves out is an absent Tensor.
class Results {
 public:
  static constexpr int kMaxResults = 6;

  Results() = default;
  template <std::convertible_to<Tensor>... Tensors>
  Results(Tensors&&... tensors) {  // NOLINT: as `return {output, ids};` wants it
    static_assert(sizeof...(Tensors) <= kMaxResults);
    (tensors_.emplace_back(std::forward<Tensors>(tensors)), ...);
  }
  void push_back(Tensor tensor) {
    if (tensors_.full()) throw Error(ErrorKind::kInternal, "an op returns at most 6 tensors");
    tensors_.emplace_back(std::move(tensor));
  }
  int size() const { return static_cast<int>(tensors_.size()); }
  const Tensor& operator[](int i) const { return tensors_[static_cast<size_t>(i)]; }
  /// Moves an output out; it is absent here from then on.
  Tensor take(int i) { return std::move(tensors_[static_cast<size_t>(i)]); }
  const Tensor* begin() const { return tensors_.begin(); }
  const Tensor* end() const { return tensors_.end(); }
  std::span<const Tensor> span() const { return {tensors_.data(), tensors_.size()}; }

 private:
  InlineVector<Tensor, kMaxResults> tensors_;
};

}  // namespace tileops
