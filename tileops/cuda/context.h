// SPDX-License-Identifier: Apache-2.0
// Devices and their primary contexts, which the library shares with every other user of the
// process.
#pragma once

#include <cstdint>

#include "tileops/core/device.h"
#include "tileops/cuda/driver_abi.h"

namespace tileops::cuda {

/// Devices beyond this number are not seen.
inline constexpr int kMaxDevices = 64;

/// GPUs that the driver shows to this process. Errors: driver()'s.
int num_devices();
/// The calling thread's current device; cuda:0 where it has none. Errors: driver()'s.
Device current_device();
/// The driver's number of a device. Errors: kDevice naming how many there are.
abi::DeviceOrdinal ordinal_of(Device device);
/// Errors: kDevice.
int device_attribute(Device device, abi::DeviceAttribute attribute);
/// L2 cache of a device. Errors: kDevice.
int64_t l2_bytes(Device device);

/// Makes the primary context of a device current on this thread, and brings the caller's back.
/// The context is retained once and kept for the life of the process. A thread that had none keeps
/// device 0's, which the CUDA runtime would give it too, so that its next calls need not switch.
/// Errors: kDevice for a device that is not there or not CUDA.
class ContextGuard {
 public:
  explicit ContextGuard(Device device);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  abi::Context outer_ = nullptr;
  bool switched_ = false;
};

}  // namespace tileops::cuda
