// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/device.h"

#include <charconv>

#include "tileops/core/check.h"

namespace tileops {

std::string_view device_type_name(DeviceType type) {
  switch (type) {
    case DeviceType::kCPU:
      return "cpu";
    case DeviceType::kCUDA:
      return "cuda";
    case DeviceType::kMeta:
      return "meta";
  }
  return "unknown";
}

std::string to_string(Device device) {
  if (device.type != DeviceType::kCUDA) return std::string(device_type_name(device.type));
  return fmt::format("cuda:{}", device.index);
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return kCpuDevice;
  if (text == "meta") return kMetaDevice;
  if (text == "cuda") return {DeviceType::kCUDA, 0};
  constexpr std::string_view kPrefix = "cuda:";
  int32_t index = -1;
  if (text.starts_with(kPrefix)) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + kPrefix.size(), end, index);
    if (error != std::errc() || stop != end) index = -1;
  }
  TILEOPS_CHECK(ErrorKind::kValue, index >= 0, "device must be cpu, meta, cuda or cuda:N, got '{}'",
                text);
  return {DeviceType::kCUDA, index};
}

}  // namespace tileops
