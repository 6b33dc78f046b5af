// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/activation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include "tileops/core/check.h"

namespace tileops {
namespace {

constexpr const char* kTypeName = "GatedActivation";

struct Named {
  GatedActivation::Kind kind;
  std::string_view name;
};
constexpr std::array<Named, 4> kNames{
    {{GatedActivation::Kind::kSiluAndMul, "silu_and_mul"},
     {GatedActivation::Kind::kGeluAndMul, "gelu_and_mul"},
     {GatedActivation::Kind::kGeluTanhAndMul, "gelu_tanh_and_mul"},
     {GatedActivation::Kind::kSwigluOai, "swigluoai"}}};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double gelu_erf(double x) { return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2)); }

double gelu_tanh(double x) {
  const double scale = std::sqrt(2.0 / std::numbers::pi);
  return 0.5 * x * (1.0 + std::tanh(scale * (x + 0.044715 * x * x * x)));
}

double double_field(const SumValue& sum, std::string_view name) {
  const Value* value = sum.field(name);
  TILEOPS_CHECK(ErrorKind::kType, value != nullptr && value->as_double() != nullptr,
                "{}: {} needs the number {}", kTypeName, sum.constructor, name);
  return *value->as_double();
}

}  // namespace

double GatedActivation::operator()(double gate, double up) const {
  switch (kind_) {
    case Kind::kNone:
      break;
    case Kind::kSiluAndMul:
      return gate * sigmoid(gate) * up;
    case Kind::kGeluAndMul:
      return gelu_erf(gate) * up;
    case Kind::kGeluTanhAndMul:
      return gelu_tanh(gate) * up;
    case Kind::kSwigluOai: {
      // Comparisons keep a NaN where std::min and std::clamp might drop it.
      const double g = gate > limit_ ? limit_ : gate;
      const double u = up > limit_ ? limit_ : up < -limit_ ? -limit_ : up;
      return g * sigmoid(alpha_ * g) * (u + 1.0);
    }
  }
  raise(ErrorKind::kInternal, "GatedActivation: none has no value");
}

Value GatedActivation::to_value() const {
  if (is_none()) return {};
  const auto it =
      std::find_if(kNames.begin(), kNames.end(), [&](const Named& n) { return n.kind == kind_; });
  SumValue sum{kTypeName, std::string(it->name), {}};
  if (kind_ == Kind::kSwigluOai) sum.fields = {{"alpha", alpha_}, {"limit", limit_}};
  return sum;
}

GatedActivation GatedActivation::from_value(const Value& value) {
  if (value.is_none()) return {};
  const SumValue* sum = value.as_sum();
  TILEOPS_CHECK(ErrorKind::kType, sum != nullptr && sum->type == kTypeName, "expected a {}, got {}",
                kTypeName, to_string(value));
  const auto it = std::find_if(kNames.begin(), kNames.end(),
                               [&](const Named& n) { return n.name == sum->constructor; });
  TILEOPS_CHECK(ErrorKind::kType, it != kNames.end(), "{}: there is no {}", kTypeName,
                sum->constructor);
  if (it->kind == Kind::kSwigluOai)
    return swigluoai(double_field(*sum, "alpha"), double_field(*sum, "limit"));
  return {it->kind, 0, 0};
}

}  // namespace tileops
