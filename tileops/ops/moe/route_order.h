// SPDX-License-Identifier: Apache-2.0
// RouteOrder: the routes of a batch, stable by expert. What every permutation of the family
// follows.
#pragma once

#include <cstdint>
#include <vector>

#include "tileops/core/tensor.h"

namespace tileops {

/// Route t·K + k is the k-th choice of token t. Those of expert e are routes[offsets[e]] to
/// routes[offsets[e + 1] - 1], ascending; a route whose id lies outside [0, num_experts) is
/// dropped.
struct RouteOrder {
  std::vector<int64_t> offsets;  // [num_experts + 1]
  std::vector<int32_t> routes;   // the kept ones
  int64_t count(int64_t expert) const {
    const auto e = static_cast<size_t>(expert);
    return offsets[e + 1] - offsets[e];
  }
};

/// topk_ids: int32 [T, K] on the CPU, any strides.
RouteOrder order_routes(const Tensor& topk_ids, int64_t num_experts);

}  // namespace tileops
