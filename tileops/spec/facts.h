// SPDX-License-Identifier: Apache-2.0
// What a check learns of one call: the values of the indices and the facts of every tensor. Held
// inline in the call's record, so that a check allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tileops/core/device.h"
#include "tileops/core/dtype.h"
#include "tileops/core/inline_vector.h"
#include "tileops/core/shape.h"
#include "tileops/core/tensor_refs.h"

namespace tileops::spec {

/// An entry with more is refused when it is loaded.
inline constexpr int kMaxTensors = 20;  // inputs and outputs together
inline constexpr int kMaxIndices = 24;  // forall and let together

/// The tensors of a call, in the signature's order. An absent optional input is an undefined
/// Tensor; `outs` has a slot per output that the spec calls `buffer: out` (undefined where not
/// given), or is empty.
struct CallTensors {
  TensorRefs inputs;
  TensorRefs outs;
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
  InlineVector<IndexValue, kMaxIndices> indices;
  InlineVector<TensorFacts, kMaxTensors> inputs;
  InlineVector<TensorFacts, kMaxTensors>
      outputs;  // as inferred; present: false for an absent output
};

}  // namespace tileops::spec
