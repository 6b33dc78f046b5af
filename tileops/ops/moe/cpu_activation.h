// SPDX-License-Identifier: Apache-2.0
// The activation as the CPU's kernels take it.
#pragma once

#include "tileops/cpu/grouped_gemm.h"
#include "tileops/ops/moe/activation.h"

namespace tileops {

inline cpu::ActivationParams cpu_activation(const GatedActivation& activation) {
  using Kind = GatedActivation::Kind;
  switch (activation.kind()) {
    case Kind::kNone:
      break;
    case Kind::kSiluAndMul:
      return {.kind = cpu::Activation::kSiluAndMul};
    case Kind::kGeluAndMul:
      return {.kind = cpu::Activation::kGeluAndMul};
    case Kind::kGeluTanhAndMul:
      return {.kind = cpu::Activation::kGeluTanhAndMul};
    case Kind::kSwigluOai:
      return {cpu::Activation::kSwigluOai, static_cast<float>(activation.alpha()),
              static_cast<float>(activation.limit())};
  }
  return {.kind = cpu::Activation::kNone};
}

}  // namespace tileops
