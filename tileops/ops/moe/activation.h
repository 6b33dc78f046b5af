// SPDX-License-Identifier: Apache-2.0
// GatedActivation: act(gate)·up, the four forms that MoE models use.
#pragma once

#include <cstdint>

#include "tileops/core/hash.h"
#include "tileops/core/value.h"

namespace tileops {

/// The spec's sum type of the same name. For all but swigluoai the rows of b are stacked, F gate
/// rows then F up rows; for swigluoai they are interleaved, row 2j gate and row 2j + 1 up.
class GatedActivation {
 public:
  enum class Kind : uint8_t { kNone, kSiluAndMul, kGeluAndMul, kGeluTanhAndMul, kSwigluOai };

  /// No activation: the product is stored as it is.
  constexpr GatedActivation() = default;
  static const GatedActivation silu_and_mul;
  static const GatedActivation gelu_and_mul;  // erf form
  static const GatedActivation gelu_tanh_and_mul;
  /// g = min(gate, limit), u = clamp(up, ±limit), g·sigmoid(alpha·g)·(u + 1). Source: GPT-OSS.
  static constexpr GatedActivation swigluoai(double alpha = 1.702, double limit = 7.0) {
    return GatedActivation(Kind::kSwigluOai, alpha, limit);
  }

  constexpr Kind kind() const { return kind_; }
  constexpr bool is_none() const { return kind_ == Kind::kNone; }
  constexpr bool is_interleaved() const { return kind_ == Kind::kSwigluOai; }
  constexpr double alpha() const { return alpha_; }
  constexpr double limit() const { return limit_; }
  bool operator==(const GatedActivation&) const = default;
  size_t hash() const { return hash_of(static_cast<int>(kind_), alpha_, limit_); }

  /// act(gate)·up in double: the definition that every kernel is compared with.
  double operator()(double gate, double up) const;

  /// The spec's value (None for no activation) and back. Errors: kType.
  Value to_value() const;
  static GatedActivation from_value(const Value& value);

 private:
  constexpr GatedActivation(Kind kind, double alpha, double limit)
      : kind_(kind), alpha_(alpha), limit_(limit) {}

  Kind kind_ = Kind::kNone;
  double alpha_ = 0;
  double limit_ = 0;
};

inline constexpr GatedActivation GatedActivation::silu_and_mul{Kind::kSiluAndMul, 0, 0};
inline constexpr GatedActivation GatedActivation::gelu_and_mul{Kind::kGeluAndMul, 0, 0};
inline constexpr GatedActivation GatedActivation::gelu_tanh_and_mul{Kind::kGeluTanhAndMul, 0, 0};

}  // namespace tileops
