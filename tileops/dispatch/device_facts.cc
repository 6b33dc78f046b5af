// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <mutex>

#include "tileops/core/check.h"
#include "tileops/cpu/features.h"
#include "tileops/cpu/parallel.h"
#include "tileops/dispatch/kernel.h"

namespace tileops {
namespace {

DeviceFacts cpu_facts(Device device) {
  DeviceFacts facts;
  facts.device = device;
  facts.name = "cpu";
  for (cpu::IsaLevel level : cpu::available_isa_levels()) {
    facts.archs.emplace_back(cpu::name_of(level));
  }
  facts.num_processors = cpu::num_threads();
  return facts;
}

DeviceFacts meta_facts(Device device) { return {.device = device, .name = "meta"}; }

struct Providers {
  std::mutex mutex;  // guards the two maps
  std::map<DeviceType, DeviceFactsProvider> by_type{{DeviceType::kCPU, cpu_facts},
                                                    {DeviceType::kMeta, meta_facts}};
  std::map<std::pair<DeviceType, int32_t>, DeviceFacts> found;
};

Providers& providers() {
  static auto& instance = *new Providers;
  return instance;
}

}  // namespace

const DeviceFacts& device_facts(Device device) {
  Providers& p = providers();
  const std::pair key{device.type, device.index};
  DeviceFactsProvider provider;
  {
    std::lock_guard lock(p.mutex);
    if (const auto it = p.found.find(key); it != p.found.end()) return it->second;
    if (const auto it = p.by_type.find(device.type); it != p.by_type.end()) provider = it->second;
  }
  TILEOPS_CHECK(ErrorKind::kDevice, provider != nullptr,
                "device {}: this build has no support for {} devices", to_string(device),
                device_type_name(device.type));
  DeviceFacts facts = provider(device);
  std::lock_guard lock(p.mutex);
  return p.found.try_emplace(key, std::move(facts)).first->second;
}

void set_device_facts_provider(DeviceType type, DeviceFactsProvider provider) {
  Providers& p = providers();
  std::lock_guard lock(p.mutex);
  p.by_type[type] = std::move(provider);
}

}  // namespace tileops
