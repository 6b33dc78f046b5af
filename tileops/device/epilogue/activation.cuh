// SPDX-License-Identifier: Apache-2.0
// Gated activations on float32: act(gate) * up.
#pragma once

#include "tileops/device/epilogue/activation_kind.h"

namespace tileops::device {

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

struct SiluAndMul {
  __device__ __forceinline__ float operator()(float gate, float up) const {
    return gate * sigmoid(gate) * up;
  }
};

struct GeluAndMul {
  __device__ __forceinline__ float operator()(float gate, float up) const {
    constexpr float kSqrtHalf = 0.70710678118654752f;
    return 0.5f * gate * (1.0f + erff(gate * kSqrtHalf)) * up;
  }
};

struct GeluTanhAndMul {
  __device__ __forceinline__ float operator()(float gate, float up) const {
    constexpr float kTwiceSqrt2OverPi = 1.5957691216057308f;
    constexpr float kCubic = 0.044715f;
    // 0.5 (1 + tanh(z)) = sigmoid(2 z)
    return gate * sigmoid(kTwiceSqrt2OverPi * (gate + kCubic * gate * gate * gate)) * up;
  }
};

/// GPT-OSS: the gate is clamped from above, the linear part on both sides and shifted by one.
struct SwigluOai {
  float alpha;
  float limit;

  __device__ __forceinline__ float operator()(float gate, float up) const {
    const float g = clamp_above(gate);
    const float u = up < -limit ? -limit : clamp_above(up);
    return g * sigmoid(alpha * g) * (u + 1.0f);
  }

 private:
  __device__ __forceinline__ float clamp_above(float x) const { return x > limit ? limit : x; }
};

/// The same, chosen at run time: for kernels whose time does not lie here.
__device__ __forceinline__ float activate(const ActivationParams& p, float gate, float up) {
  switch (p.kind) {
    case ActivationKind::kGeluAndMul:
      return GeluAndMul()(gate, up);
    case ActivationKind::kGeluTanhAndMul:
      return GeluTanhAndMul()(gate, up);
    case ActivationKind::kSwigluOai:
      return SwigluOai{p.alpha, p.limit}(gate, up);
    default:
      return SiluAndMul()(gate, up);
  }
}

}  // namespace tileops::device
