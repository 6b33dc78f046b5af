// SPDX-License-Identifier: Apache-2.0
// The gated activations by number, for host and device; activation.cuh computes them.
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::device {

enum class ActivationKind : int32_t {
  kNone,
  kSiluAndMul,
  kGeluAndMul,
  kGeluTanhAndMul,
  kSwigluOai,
};

/// A gated activation that a kernel learns at run time.
struct ActivationParams {
  ActivationKind kind;
  float alpha;  // of kSwigluOai
  float limit;
};

}  // namespace tileops::device
