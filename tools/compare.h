// SPDX-License-Identifier: Apache-2.0
// Comparing outputs with what they should be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tileops/core/tensor.h"

namespace tileops::tools {

/// Which elements of an output mean something, in row-major order; empty: all.
using Specified = std::vector<bool>;

/// While it lives, fresh CPU tensors hold a pattern that no op computes.
class PoisonedAllocations {
 public:
  PoisonedAllocations();
  ~PoisonedAllocations();
  PoisonedAllocations(const PoisonedAllocations&) = delete;
  PoisonedAllocations& operator=(const PoisonedAllocations&) = delete;
};
/// The elements of a contiguous tensor that no longer hold the pattern.
Specified written(const Tensor& tensor);

struct Comparison {
  std::string output;
  std::string against;  // "reference", "PyTorch 2.11.0"
  double error = 0;     // |got - want| / |want|, Euclidean norms of the specified elements
  double tolerance = 0;
  int64_t num_compared = 0;
  std::string fault;  // "" where it passed
};

/// Tolerance by the output's dtype unless one is stated; integers must be equal. An element that is
/// not finite must be the same in both.
Comparison compare(const Tensor& got, const Tensor& want, const Specified& specified,
                   std::optional<double> tolerance);

/// XXH3 of the elements in row-major order, unspecified ones as zeros: "xxh3:0123456789abcdef".
std::string checksum(const Tensor& tensor, const Specified& specified);

}  // namespace tileops::tools
