// SPDX-License-Identifier: Apache-2.0
// Tensor maps: how the copy engine (TMA) sees a tensor.
#pragma once

#include <array>
#include <cstdint>

#include "tileops/core/device.h"
#include "tileops/core/dtype.h"

namespace tileops::cuda {

/// An encoded map, passed by value as a __grid_constant__ kernel argument.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

/// Arrangement of a box's innermost rows in shared memory; the number is the span in bytes.
enum class Swizzle : uint8_t { kNone, k32, k64, k128 };
/// Bytes that an L2 miss brings in at least.
enum class L2Promotion : uint8_t { kNone, k64, k128, k256 };

/// A tiled map; dimensions innermost first, the innermost contiguous.
struct TensorMapSpec {
  static constexpr int kMaxRank = 5;

  const void* data = nullptr;  // aligned to 16 bytes
  DType dtype = DType::kBF16;
  Swizzle swizzle = Swizzle::k128;
  L2Promotion l2_promotion = L2Promotion::k128;  // with 256 a stream reads 3 to 5 % slower
  int32_t rank = 2;
  std::array<int64_t, kMaxRank> dims{};         // in elements, each 1 .. 2^32
  std::array<int64_t, kMaxRank - 1> strides{};  // of dimensions 1 and up, in elements
  std::array<int32_t, kMaxRank> box{};          // in elements, each 1 .. 256
  bool operator==(const TensorMapSpec&) const = default;
};

/// Elements outside the tensor read as zero and are not written. The map is of memory of `device`.
/// Errors: kValue naming the rule (alignment, stride multiple of 16 bytes, box extent, a swizzled
/// row wider than its span), kInternal (the driver's refusal), kDevice.
TensorMap encode_tensor_map(const TensorMapSpec& spec, Device device);

/// The same, from a cache of this thread's latest maps (512).
TensorMap cached_tensor_map(const TensorMapSpec& spec, Device device);

}  // namespace tileops::cuda
