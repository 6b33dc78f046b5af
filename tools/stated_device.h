// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tileops/dispatch/kernel.h"

namespace CLI {
class App;
}

namespace tileops::tools {

struct StatedDevice {
  std::string device = "cpu";
  std::vector<std::string> archs;  // empty: what the machine's device has
  std::string name;                // with archs: "NVIDIA H200"; its tuning table decides
};
void add_stated_device(CLI::App& command, StatedDevice& stated);

/// The facts of a device that need not be in the machine. Errors: kValue (unknown device or level),
/// kDevice (no such device here and no --arch given).
DeviceFacts facts_of(const StatedDevice& stated);

}  // namespace tileops::tools
