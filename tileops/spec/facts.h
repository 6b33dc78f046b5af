// SPDX-License-Identifier: Apache-2.0
// What a check learns of one call: the values of the indices and the facts of every tensor. Held
// inline in the call's record, so that a check allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "tileops/core/device.h"
#include "tileops/core/dtype.h"
#include "tileops/core/shape.h"
#include "tileops/core/tensor.h"

namespace tileops::spec {

/// An entry with more is refused when it is loaded.
inline constexpr int kMaxTensors = 20;  // inputs and outputs together
inline constexpr int kMaxIndices = 24;  // forall and let together

/// The tensors of a call, in the signature's order. An absent optional input is an undefined
/// Tensor; `outs` has a slot per output that the spec calls `buffer: out` (undefined where not
/// given), or is empty.
struct CallTensors {
  std::span<const Tensor> inputs;
  std::span<const Tensor> outs;
};

struct TensorFacts {
  bool present = false;
  DType dtype = DType::kF32;
  Device device = kCpuDevice;
  Shape shape;
  Strides strides;
  bool operator==(const TensorFacts&) const = default;
  int64_t bytes() const { return present ? num_elements(shape) * dtype_bytes(dtype) : 0; }
};

/// The value of one index: a size, a dtype, or a sequence of sizes (a Shape or Seq[Int] index).
struct IndexValue {
  enum class Kind : uint8_t { kUnknown, kDim, kDType, kSeq };
  Kind kind = Kind::kUnknown;
  DType dtype = DType::kF32;
  int64_t dim = 0;
  Dims seq;
};

/// Up to kMax values in place, of which the first size() exist: to fill all of a record's thousands
/// of bytes would take longer than a check.
template <class T, size_t kMax>
class Slots {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  Slots() {}  // NOLINT: values_ begin with reset()
  Slots(const Slots& other) { *this = other; }
  Slots& operator=(const Slots& other) {
    if (this == &other) return *this;
    size_ = other.size_;
    std::uninitialized_copy_n(other.values_, size_, values_);
    return *this;
  }

  /// `count` values, all as T() has them; at most kMax.
  void reset(size_t count) {
    static constexpr T kBlank{};  // copied, which compilers do better than to construct it
    size_ = count;
    std::uninitialized_fill_n(values_, count, kBlank);
  }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return values_[i]; }
  const T& operator[](size_t i) const { return values_[i]; }
  T* begin() { return values_; }
  T* end() { return values_ + size_; }
  T* data() { return values_; }
  const T* data() const { return values_; }
  const T* begin() const { return values_; }
  const T* end() const { return values_ + size_; }

 private:
  size_t size_ = 0;
  union {
    T values_[kMax];
  };
};

/// Filled by Signature::check; slots are those of Entry::indices(), Entry::inputs(), outputs().
struct CallFacts {
  /// That of the tensors which the spec does not put on the CPU; where the call has none, what
  /// stood here before the check.
  Device device = kCpuDevice;
  bool has_device = false;         // whether the call has such a tensor
  std::string_view effect_branch;  // "" or the branch's suffix: "out", "mutated", …
  uint32_t mutated = 0;            // bit i: input i is written
  bool writes = false;             // some tensor is written
  bool writes_elements = false;    // some written tensor has elements
  Slots<IndexValue, kMaxIndices> indices;
  Slots<TensorFacts, kMaxTensors> inputs;
  Slots<TensorFacts, kMaxTensors> outputs;  // as inferred; present: false for an absent output
};

}  // namespace tileops::spec
