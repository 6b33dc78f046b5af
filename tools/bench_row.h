// SPDX-License-Identifier: Apache-2.0
// One row of a benchmark: an op on a workload, checked, then timed.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tileops/perf/profile.h"
#include "tools/job.h"

namespace tileops::tools {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  Device device = kCpuDevice;
  std::optional<perf::DeviceProfile> profile;  // none: the device's
  bool checks = true;
  bool tunes = false;           // request_tune() before the first call
  bool packs = false;           // on the CPU: experts\' weights are packed ahead
  double seconds = 0.2;         // of timed calls, about
  double rest_ms = 0;           // before each sample
  std::string metadata_folder;  // where each row\'s metadata inputs go, for peers; "": nowhere
};

/// Makes the inputs, compares one call with what the CPU computes, then times calls on several sets
/// of inputs that share what is large (weights). The row holds the check, times in microseconds, the
/// floor with its share, and the kernels that ran with their configurations. What cannot be measured
/// is an `error` in the row.
Json bench_row(const std::string& name, const JobOptions& what, const BenchOptions& options);

}  // namespace tileops::tools
