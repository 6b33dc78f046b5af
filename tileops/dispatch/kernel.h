// SPDX-License-Identifier: Apache-2.0
// Kernel: the callable that computes on a device. What a device can do: DeviceFacts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/device.h"
#include "tileops/core/value.h"

namespace tileops {

namespace cuda {
struct ProgramSpec;
}

/// Where a kernel's configuration is from.
enum class ConfigOrigin : uint8_t {
  kDefault,  // the implementation's own choice
  kTable,    // a tuning table: the user's, or the one shipped with the library
  kTuned,    // measured by this process
  kForced,   // OpOptions::kernel_config
};
/// "default", "table", "tuned", "forced".
std::string_view config_origin_name(ConfigOrigin origin);

/// Base of every kernel interface's kernel class, which adds a `run` of its own.
/// Thread safety: `run` is called from several threads at once; `request_tune` by one at a time.
class Kernel {
 public:
  virtual ~Kernel() = default;

  /// Whether there is anything to tune.
  virtual bool tunable() const { return false; }
  /// Tunes now where the program is built, else at the launch that builds it. Idempotent once it
  /// has succeeded. The candidates include the untuned configuration.
  /// Errors: what tuning throws; the kernel keeps its former configuration and can be asked again.
  virtual void request_tune() {}
  /// The configuration in use, such as {tile_m: 128, stages: 4}; empty where there is none.
  virtual Params config() const { return {}; }
  virtual ConfigOrigin config_origin() const { return ConfigOrigin::kDefault; }
  /// Tells every device program that a launch may need, candidates of tuning included; touches no
  /// device.
  using ProgramSink = std::function<void(const cuda::ProgramSpec&)>;
  virtual void list_programs(const ProgramSink&) const {}
};

/// What selection may know of a device. `archs` names what it can execute, such as "sm_90a" or
/// "avx512_bf16".
struct DeviceFacts {
  Device device = kCpuDevice;
  std::vector<std::string> archs;
  std::string name;        // "NVIDIA H200"; for messages
  int num_processors = 0;  // SMs, or CPU threads
  int64_t smem_bytes = 0;  // shared memory a CTA may ask for; 0 on a CPU
  bool operator==(const DeviceFacts&) const = default;
};

/// The facts of a device of this process, found once. Errors: kDevice (no such device, no driver).
const DeviceFacts& device_facts(Device device);

/// Sets how the facts of a device type are found. The CPU's provider is there from the start.
using DeviceFactsProvider = std::function<DeviceFacts(Device device)>;
void set_device_facts_provider(DeviceType type, DeviceFactsProvider provider);

}  // namespace tileops
