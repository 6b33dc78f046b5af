// SPDX-License-Identifier: Apache-2.0
#include "tools/stated_device.h"

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "tileops/core/check.h"
#include "tileops/cpu/features.h"

namespace tileops::tools {
namespace {

/// A CPU that runs a level runs those below it.
std::vector<std::string> levels_up_to(const std::string& name) {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(cpu::IsaLevel::kAmx); ++i) {
    names.emplace_back(cpu::name_of(static_cast<cpu::IsaLevel>(i)));
    if (names.back() == name) return names;
  }
  raise(ErrorKind::kValue, "--arch {}: a CPU's is one of {}", name, fmt::join(names, ", "));
}

/// What runs a generation's own instructions ("sm_90a") runs the generation's others too.
DeviceFacts cuda_facts(const std::vector<std::string>& archs) {
  DeviceFacts facts{.device = {DeviceType::kCUDA, 0}};
  for (const std::string& arch : archs) {
    facts.archs.push_back(arch);
    if (arch.ends_with('a')) facts.archs.push_back(arch.substr(0, arch.size() - 1));
  }
  for (const std::string& arch : archs) {
    if (arch != "sm_90a") continue;
    facts.num_processors = 132;
    facts.smem_bytes = 227 << 10;
  }
  return facts;
}

DeviceFacts cpu_facts(Device device, const StatedDevice& stated) {
  TILEOPS_CHECK(ErrorKind::kValue, device.type == DeviceType::kCPU && stated.archs.size() == 1,
                "--device {}: --arch states one level of a CPU, or what a CUDA device runs",
                stated.device);
  DeviceFacts facts = device_facts(device);
  facts.archs = levels_up_to(stated.archs.front());
  return facts;
}

}  // namespace

void add_stated_device(CLI::App& command, StatedDevice& stated) {
  command.add_option("--device", stated.device, "cpu or cuda; it need not be in the machine")
      ->type_name("DEVICE");
  CLI::Option* const arch =
      command
          .add_option("--arch", stated.archs,
                      "What the device can run, such as sm_90a or avx2 (repeatable)")
          ->type_name("ARCH")
          ->expected(1)
          ->take_all()
          ->allow_extra_args(false);
  command
      .add_option("--device-name", stated.name,
                  "Its name, such as 'NVIDIA H200', by which a tuning table is found")
      ->type_name("NAME")
      ->needs(arch);
}

DeviceFacts facts_of(const StatedDevice& stated) {
  const Device device = parse_device(stated.device);
  if (stated.archs.empty()) return device_facts(device);
  const bool is_cuda = device.type == DeviceType::kCUDA;
  DeviceFacts facts = is_cuda ? cuda_facts(stated.archs) : cpu_facts(device, stated);
  facts.name = stated.name;
  if (facts.name.empty()) {
    facts.name =
        fmt::format("a {} with {}", is_cuda ? "CUDA device" : "CPU", fmt::join(stated.archs, ", "));
  }
  return facts;
}

}  // namespace tileops::tools
