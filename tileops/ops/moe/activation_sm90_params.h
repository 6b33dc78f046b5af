// SPDX-License-Identifier: Apache-2.0
// GatedActivation as the GPU's kernels take it.
#pragma once

#include "tileops/device/epilogue/activation_kind.h"
#include "tileops/ops/moe/activation.h"

namespace tileops {

inline device::ActivationKind activation_kind(const GatedActivation& activation) {
  using Host = GatedActivation::Kind;
  using device::ActivationKind;
  static_assert(static_cast<int>(Host::kNone) == static_cast<int>(ActivationKind::kNone));
  static_assert(static_cast<int>(Host::kGeluTanhAndMul) ==
                static_cast<int>(ActivationKind::kGeluTanhAndMul));
  static_assert(static_cast<int>(Host::kSwigluOai) == static_cast<int>(ActivationKind::kSwigluOai));
  return static_cast<ActivationKind>(activation.kind());
}

inline device::ActivationParams activation_params(const GatedActivation& activation) {
  return {activation_kind(activation), static_cast<float>(activation.alpha()),
          static_cast<float>(activation.limit())};
}

}  // namespace tileops
