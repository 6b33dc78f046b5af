// SPDX-License-Identifier: Apache-2.0
// ConfigChoice: which of its configurations a kernel uses. A kernel holds one, declares its
// candidates, and reads index() at each launch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tileops/core/device.h"
#include "tileops/dispatch/implementation.h"
#include "tileops/perf/autotuner.h"

namespace tileops::perf {

/// What a kernel could use.
struct ConfigCandidates {
  std::string implementation;          // "grouped_gemm/sm90_weights_on_m"
  std::string bucket;                  // the calls that share the choice
  std::vector<Params> configs;         // [0]: the untuned one; one alone: nothing to tune
  bool is_forced = false;              // [0] is what the op's user forces
  std::vector<double> handicaps = {};  // of each, see pick_candidate; empty: 1
};

/// Thread safety: index(), config() and origin() beside tune(), which is called by one at a time.
class ConfigChoice {
 public:
  /// Takes what is forced, else what a tuning table says and is a candidate, else the untuned one.
  ConfigChoice(ConfigCandidates candidates, const std::string& device_name);

  size_t index() const { return state_.load(std::memory_order_acquire) >> kOriginBits; }
  ConfigOrigin origin() const {
    return static_cast<ConfigOrigin>(state_.load(std::memory_order_acquire) & kOriginMask);
  }
  const Params& config() const { return candidates_.configs[index()]; }
  ConfigInUse in_use() const { return {config(), origin()}; }
  bool tunable() const { return !candidates_.is_forced && candidates_.configs.size() > 1; }

  /// Measures the candidates (perf::tune) unless a table had the choice.
  /// Errors: perf::tune's; the choice stays.
  void tune(Device device, size_t num_scenarios, const std::function<RunCandidate()>& prepare);

 private:
  static constexpr uint32_t kOriginBits = 2, kOriginMask = 3;

  TuningKey key() const;
  /// Takes a table's or a tuning's configuration where it is a candidate.
  bool take(const Params& config, ConfigOrigin origin);

  const ConfigCandidates candidates_;
  const std::string device_name_;
  std::atomic<uint32_t> state_{0};  // index and origin, in one so that they agree
};

}  // namespace tileops::perf
