// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/context.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "tileops/core/log.h"
#include "tileops/cuda/driver_check.h"

namespace tileops::cuda {
namespace {

constinit std::array<std::atomic<abi::Context>, kMaxDevices> primary_contexts{};

abi::Context primary_context(Device device) {
  if (device.type == DeviceType::kCUDA && device.index >= 0 && device.index < kMaxDevices) {
    const abi::Context known = primary_contexts[device.index].load(std::memory_order_acquire);
    if (known != nullptr) return known;
  }
  const abi::DeviceOrdinal ordinal = ordinal_of(device);
  abi::Context context = nullptr;
  TILEOPS_DRIVER_CHECK(driver().device_primary_ctx_retain(&context, ordinal),
                       "opening the primary context of {}", to_string(device));
  primary_contexts[device.index].store(context, std::memory_order_release);
  return context;
}

}  // namespace

int num_devices() {
  int count = 0;
  TILEOPS_DRIVER_CHECK(driver().device_get_count(&count), "counting CUDA devices");
  return count;
}

abi::DeviceOrdinal ordinal_of(Device device) {
  TILEOPS_CHECK(ErrorKind::kDevice, device.type == DeviceType::kCUDA, "{} is not a CUDA device",
                to_string(device));
  const int count = std::min(num_devices(), kMaxDevices);
  TILEOPS_CHECK(ErrorKind::kDevice, device.index >= 0 && device.index < count,
                "there is no {}: this process sees {} CUDA device{}", to_string(device), count,
                count == 1 ? "" : "s");
  abi::DeviceOrdinal ordinal = 0;
  TILEOPS_DRIVER_CHECK(driver().device_get(&ordinal, device.index), "finding {}",
                       to_string(device));
  return ordinal;
}

Device current_device() {
  abi::Context context = nullptr;
  TILEOPS_DRIVER_CHECK(driver().ctx_get_current(&context), "asking for the current context");
  abi::DeviceOrdinal ordinal = 0;
  if (context != nullptr) {
    TILEOPS_DRIVER_CHECK(driver().ctx_get_device(&ordinal), "asking for the current device");
  }
  return {DeviceType::kCUDA, ordinal};
}

int device_attribute(Device device, abi::DeviceAttribute attribute) {
  int value = 0;
  TILEOPS_DRIVER_CHECK(driver().device_get_attribute(&value, attribute, ordinal_of(device)),
                       "reading attribute {} of {}", static_cast<int>(attribute),
                       to_string(device));
  return value;
}

int64_t l2_bytes(Device device) {
  return device_attribute(device, abi::DeviceAttribute::kL2CacheBytes);
}

ContextGuard::ContextGuard(Device device) {
  const abi::Context wanted = primary_context(device);
  TILEOPS_DRIVER_CHECK(driver().ctx_get_current(&outer_), "asking for the current context");
  if (outer_ == wanted) return;
  TILEOPS_DRIVER_CHECK(driver().ctx_set_current(wanted), "making {} current", to_string(device));
  switched_ = outer_ != nullptr || device.index != 0;
}

ContextGuard::~ContextGuard() {
  if (!switched_) return;
  const abi::Result result = driver().ctx_set_current(outer_);
  if (result != abi::Result::kSuccess && log_on(Log::kExec)) {
    log_line(Log::kExec, "bringing the caller's context back: " + describe(result));
  }
}

}  // namespace tileops::cuda
