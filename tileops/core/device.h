// SPDX-License-Identifier: Apache-2.0
// Where tensors live and kernels run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tileops {

enum class DeviceType : uint8_t {
  kCPU,
  kCUDA,
  kMeta,  // facts without storage: an eager call on it checks and records, and runs nothing
};

std::string_view device_type_name(DeviceType type);

struct Device {
  DeviceType type = DeviceType::kCPU;
  int32_t index = 0;
  bool operator==(const Device&) const = default;
};

inline constexpr Device kCpuDevice{DeviceType::kCPU, 0};
inline constexpr Device kMetaDevice{DeviceType::kMeta, 0};

/// "cpu", "meta", "cuda:1".
std::string to_string(Device device);
/// The device of such a text. Errors: kValue.
Device parse_device(std::string_view text);

}  // namespace tileops
