// SPDX-License-Identifier: Apache-2.0
// Dims: the sizes or strides of a tensor, held inline so that no call allocates for them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tileops {

inline constexpr int kMaxRank = 8;

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  /// Errors: kShape for more than kMaxRank values.
  explicit Dims(std::span<const int64_t> values);

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }
  /// Errors: kShape past kMaxRank.
  void push_back(int64_t value);
  bool operator==(const Dims& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }

 private:
  std::array<int64_t, kMaxRank> values_{};
  int size_ = 0;
};

using Shape = Dims;
using Strides = Dims;

/// Number of elements. Errors: kShape for a negative size, or where the product of the sizes that
/// are not 0 goes beyond int64.
int64_t num_elements(const Shape& shape);
/// A contiguous tensor's elements and its row-major strides, in elements; in these a size of 0
/// counts as 1. Errors: as num_elements.
struct Contiguous {
  explicit Contiguous(const Shape& shape);
  Strides strides;
  int64_t num_elements = 0;
};
inline Strides contiguous_strides(const Shape& shape) { return Contiguous(shape).strides; }
/// Elements from the first one to just past the last one in memory; 0 where there are none.
/// Errors: kShape for differing ranks, a negative size or stride, an extent beyond int64.
int64_t extent_elements(const Shape& shape, const Strides& strides);
/// "[8, 4096, 2048]".
std::string to_string(const Dims& dims);

}  // namespace tileops
