// SPDX-License-Identifier: Apache-2.0
// A vector without a heap: as much of C++26's std::inplace_vector as the library needs.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace tileops {

/// Up to kMax values in place. What lies past size() is neither made nor copied, so that a call's
/// facts, made for the largest signature, cost no more than what a call has.
template <class T, size_t kMax>
class InlineVector {
 public:
  using value_type = T;
  using const_iterator = const T*;

  InlineVector() {}  // NOLINT: values_ begin with push_back or assign
  InlineVector(const InlineVector& other) : size_(other.size_) {
    std::uninitialized_copy_n(other.values_, size_, values_);
  }
  InlineVector(InlineVector&& other) noexcept : size_(other.size_) {
    std::uninitialized_move_n(other.values_, size_, values_);
    other.clear();
  }
  InlineVector& operator=(const InlineVector& other) {
    if (this == &other) return *this;
    clear();
    std::uninitialized_copy_n(other.values_, other.size_, values_);
    size_ = other.size_;
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this == &other) return *this;
    clear();
    size_ = other.size_;
    std::uninitialized_move_n(other.values_, size_, values_);
    other.clear();
    return *this;
  }
  ~InlineVector() { clear(); }

  size_t size() const { return size_; }
  bool full() const { return size_ == kMax; }
  T& operator[](size_t i) { return values_[i]; }
  const T& operator[](size_t i) const { return values_[i]; }
  T* data() { return values_; }
  const T* data() const { return values_; }
  T* begin() { return values_; }
  T* end() { return values_ + size_; }
  const T* begin() const { return values_; }
  const T* end() const { return values_ + size_; }

  /// Not where it is full().
  template <class... Args>
  T& emplace_back(Args&&... args) {
    T* value = std::construct_at(values_ + size_, std::forward<Args>(args)...);
    ++size_;
    return *value;
  }
  /// `count` values, at most kMax.
  void assign(size_t count, const T& value) {
    clear();
    std::uninitialized_fill_n(values_, count, value);
    size_ = count;
  }
  void clear() {
    std::destroy_n(values_, size_);
    size_ = 0;
  }

 private:
  size_t size_ = 0;
  union {
    T values_[kMax];
  };
};

}  // namespace tileops
