// SPDX-License-Identifier: Apache-2.0
// Where the storage of fresh tensors comes from: one allocator a device type, replaceable.
#pragma once

#include <cstddef>
#include <memory>

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

/// Makes `allocator` serve this thread's fresh tensors of a device type until the guard is
/// destroyed; the innermost guard of a type counts. Tensors keep it alive.
class AllocatorGuard {
 public:
  AllocatorGuard(DeviceType type, std::shared_ptr<Allocator> allocator);
  ~AllocatorGuard();
  AllocatorGuard(const AllocatorGuard&) = delete;
  AllocatorGuard& operator=(const AllocatorGuard&) = delete;

  /// The allocator of the thread's innermost guard of that type; null where there is none.
  static std::shared_ptr<Allocator> current(DeviceType type);

 private:
  DeviceType type_;
  std::shared_ptr<Allocator> allocator_;
  const AllocatorGuard* outer_;
};

}  // namespace tileops
