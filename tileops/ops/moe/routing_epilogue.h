// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tileops/core/value.h"

namespace tileops {

/// What the combination of the experts' outputs ends with (the spec's sum type of the same name).
struct RoutingEpilogue {
  double routed_scaling_factor = 1.0;  // finite, > 0
  bool operator==(const RoutingEpilogue&) const = default;

  /// The spec's value and back. Errors: kType for a value of another type.
  Value to_value() const;
  static RoutingEpilogue from_value(const Value& value);
};

}  // namespace tileops
