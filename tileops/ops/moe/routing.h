// SPDX-License-Identifier: Apache-2.0
// Routing: how a router chooses and weights experts.
#pragma once

#include <cstdint>

#include "tileops/core/hash.h"
#include "tileops/core/value.h"

namespace tileops {

enum class ScoringFunc : uint8_t { kSoftmax, kSigmoid };

/// The routing parameters of the router and of the layers that hold one; fused_topk.yaml has their
/// rules.
struct Routing {
  int64_t top_k = 1;
  ScoringFunc scoring_func = ScoringFunc::kSoftmax;
  bool renormalize = false;
  int64_t num_expert_group = 1;
  int64_t topk_group = 1;
  double routed_scaling_factor = 1.0;
  bool operator==(const Routing&) const = default;
  size_t hash() const {
    return hash_of(top_k, static_cast<int>(scoring_func), renormalize, num_expert_group, topk_group,
                   routed_scaling_factor);
  }

  /// The spec's parameters, in its order, and back; what is not there keeps its default.
  /// Errors: kType.
  Params to_params() const;
  static Routing from_params(const Params& params);
  Value to_value() const;
};

}  // namespace tileops
