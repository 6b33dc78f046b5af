// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/setup.h"

#include <array>

#include "tileops/core/allocator.h"
#include "tileops/cuda/allocator.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/driver_check.h"
#include "tileops/cuda/nvtx.h"

namespace tileops::cuda {
namespace {

std::string name_of(abi::DeviceOrdinal ordinal) {
  std::array<char, 256> name{};
  TILEOPS_DRIVER_CHECK(driver().device_get_name(name.data(), name.size() - 1, ordinal),
                       "reading the name of cuda:{}", ordinal);
  return name.data();
}

}  // namespace

DeviceFacts facts_of(Device device) {
  DeviceFacts facts;
  facts.device = device;
  facts.name = name_of(ordinal_of(device));
  const int capability =
      device_attribute(device, abi::DeviceAttribute::kComputeCapabilityMajor) * 10 +
      device_attribute(device, abi::DeviceAttribute::kComputeCapabilityMinor);
  // From Hopper on, a device has instructions that run on its own generation alone ("a").
  if (capability >= 90) facts.archs.push_back(fmt::format("sm_{}a", capability));
  facts.archs.push_back(fmt::format("sm_{}", capability));
  facts.num_processors = device_attribute(device, abi::DeviceAttribute::kMultiprocessorCount);
  facts.smem_bytes = device_attribute(device, abi::DeviceAttribute::kMaxSharedMemoryOptIn);
  return facts;
}

void install() {
  set_device_facts_provider(DeviceType::kCUDA, facts_of);
  Allocator* former = set_allocator(DeviceType::kCUDA, &stream_ordered_allocator());
  if (former != nullptr) set_allocator(DeviceType::kCUDA, former);
  if (const CallMarker* marker = nvtx_marker()) set_call_marker(marker);
}

}  // namespace tileops::cuda
