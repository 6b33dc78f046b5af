// SPDX-License-Identifier: Apache-2.0
// What a device can do at most: the other side of every roofline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/dispatch/kernel.h"

namespace tileops::perf {

/// Rates that set floors, and rates that nothing can pass. GB/s and GFLOP/s are powers of ten.
struct DeviceProfile {
  std::string device;     // "NVIDIA H200"
  int threads = 0;        // that the rates are of; 0 where it does not apply
  double read_gbps = 0;   // of memory
  double cache_gbps = 0;  // of what fits in cache_bytes; 0: as memory
  int64_t cache_bytes = 0;
  double peak_gflops = 0;   // the best exact rate
  std::string peak_of;      // "f32 FMA", "bf16 AMX", "dense bf16"
  double ceiling_gbps = 0;  // physical: a rate above it is a fault of the formula
  double ceiling_gflops = 0;
  bool busy = false;  // measured while other processes took the cores: rates are too low
  bool operator==(const DeviceProfile&) const = default;

  /// The rate that bounds a call of so many bytes. A set that fits in the caches is taken to lie
  /// there, as it does when a call is repeated.
  double gbps(double bytes) const;
};

/// The profile of this machine's CPU: measured once (about a second) and kept in cache_folder() by
/// the CPU's name unless the machine was busy; `again` measures whatever is kept. A folder that
/// cannot be written is no error.
DeviceProfile cpu_profile(bool again = false);
/// Whether cpu_profile() would have to measure.
bool cpu_profile_is_measured();

/// The profile that a JSON text states. `device`, `read_gbps` and `peak_gflops` are needed;
/// ceilings default to a quarter above the rates. Errors: kValue naming the source and the key.
DeviceProfile parse_profile(std::string_view json, std::string_view source);
/// The same of a file. Errors: kIo, kValue.
DeviceProfile load_profile(const std::string& path);
std::string to_json(const DeviceProfile& profile);

/// The profiles that the library ships, such as the one of the H200.
std::vector<DeviceProfile> shipped_profiles();

/// The profile of a device: the CPU's measured one, a shipped one of the device's name.
/// Errors: kDevice where there is none, naming the shipped ones.
DeviceProfile profile_for(const DeviceFacts& facts);

/// "Intel(R) Xeon(R) Processor" as the system calls it; "CPU" where it does not say.
std::string cpu_name();

}  // namespace tileops::perf
