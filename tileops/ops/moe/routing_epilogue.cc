// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/routing_epilogue.h"

#include "tileops/core/check.h"

namespace tileops {

Value RoutingEpilogue::to_value() const {
  return SumValue{"RoutingEpilogue", "scaling", {{"routed_scaling_factor", routed_scaling_factor}}};
}

RoutingEpilogue RoutingEpilogue::from_value(const Value& value) {
  const SumValue* sum = value.as_sum();
  const Value* factor = sum == nullptr ? nullptr : sum->field("routed_scaling_factor");
  TILEOPS_CHECK(ErrorKind::kType, factor != nullptr && factor->as_double() != nullptr,
                "expected a RoutingEpilogue, got {}", to_string(value));
  return {*factor->as_double()};
}

}  // namespace tileops
