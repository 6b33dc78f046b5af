// SPDX-License-Identifier: Apache-2.0
// Where the storage of fresh tensors comes from: one allocator a device type, replaceable.
#pragma once

#include <cstddef>

#include "tileops/core/device.h"
#include "tileops/core/stream.h"

namespace tileops {

/// Thread safety: both members may be called from several threads at once.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes (> 0), aligned to 64 bytes (CPU) or 256 (CUDA), usable on `stream`.
  /// Errors: kOutOfMemory.
  virtual void* allocate(size_t bytes, Stream stream) = 0;
  /// Gives back what `allocate` returned; work already put on `stream` may still use it.
  virtual void deallocate(void* data, size_t bytes, Stream stream) noexcept = 0;
};

/// The allocator of a device type. Errors: kDevice where none is set (CUDA before its first use).
Allocator& allocator_for(DeviceType type);

/// Replaces the allocator of a device type and returns the former one (null if none was set); null
/// brings the built-in one back (CPU). Errors: kDevice for meta, which has no storage.
/// The caller keeps `allocator` alive until every tensor made from it is gone.
Allocator* set_allocator(DeviceType type, Allocator* allocator);

}  // namespace tileops
