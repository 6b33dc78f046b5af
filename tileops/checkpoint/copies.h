// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "tileops/checkpoint/moe_layer.h"
#include "tileops/core/tensor.h"

namespace tileops::checkpoint {

/// A tensor of a file, and where it goes in a stacked one: of one shape and dtype; the source
/// contiguous, or the transposed view of a contiguous matrix of 16-bit elements; the destination
/// contiguous.
struct Copy {
  Tensor source;
  Tensor destination;
};

/// Copies one after the other, each on all threads; `progress` may be null.
void run_copies(const std::vector<Copy>& copies,
                const std::function<void(const LoadProgress&)>& progress);

}  // namespace tileops::checkpoint
