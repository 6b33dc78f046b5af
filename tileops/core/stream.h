// SPDX-License-Identifier: Apache-2.0
// Streams are the caller's: the library only carries the handle of the one that work is put on.
#pragma once

#include "tileops/core/device.h"

namespace tileops {

/// An opaque execution stream; for CUDA the handle is a CUstream, for the CPU it is null.
struct Stream {
  Device device = kCpuDevice;
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

/// The stream that this thread's work on `device` goes to: the innermost StreamGuard's for that
/// device, else the device's default stream (null handle). Thread safety: per thread.
Stream current_stream(Device device);

/// Makes `stream` this thread's current stream of its device until the guard is destroyed.
class StreamGuard {
 public:
  explicit StreamGuard(Stream stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream stream_;
  const StreamGuard* outer_;
  friend Stream current_stream(Device device);
};

}  // namespace tileops
