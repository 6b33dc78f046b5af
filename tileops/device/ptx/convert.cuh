// SPDX-License-Identifier: Apache-2.0
// 16-bit element types as bits, and their conversions from and to float32.
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::device {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

__device__ __forceinline__ float to_float(bf16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ __forceinline__ float to_float(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ __forceinline__ float to_float(float value) { return value; }

/// Rounds two values to nearest even; `low` goes to the lower address.
template <class T>
__device__ __forceinline__ uint32_t pack2(float low, float high);

template <>
__device__ __forceinline__ uint32_t pack2<bf16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <>
__device__ __forceinline__ uint32_t pack2<f16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <class T>
__device__ __forceinline__ T from_float(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    return T{static_cast<uint16_t>(pack2<T>(value, 0.0f) & 0xffffu)};
  }
}

}  // namespace tileops::device
