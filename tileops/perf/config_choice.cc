// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/config_choice.h"

#include <algorithm>

#include "tileops/core/check.h"

namespace tileops::perf {

ConfigChoice::ConfigChoice(ConfigCandidates candidates, const std::string& device_name)
    : candidates_(std::move(candidates)), device_name_(tuning_device(device_name)) {
  if (candidates_.is_forced) {
    take(candidates_.configs[0], ConfigOrigin::kForced);
  } else if (tunable() && !measures_again()) {
    if (const auto kept = find_tuned(key())) take(kept->config, ConfigOrigin::kTable);
  }
}

TuningKey ConfigChoice::key() const {
  return {device_name_, candidates_.implementation, candidates_.bucket};
}

bool ConfigChoice::take(const Params& config, ConfigOrigin origin) {
  const auto& all = candidates_.configs;
  const auto it = std::find(all.begin(), all.end(), config);
  if (it == all.end()) return false;
  const auto index = static_cast<uint32_t>(it - all.begin());
  state_.store(index << kOriginBits | static_cast<uint32_t>(origin), std::memory_order_release);
  return true;
}

void ConfigChoice::tune(Device device, size_t num_scenarios,
                        const std::function<RunCandidate()>& prepare) {
  if (!tunable() || origin() != ConfigOrigin::kDefault) return;
  const TunedConfig tuned = perf::tune(
      {key(), device, candidates_.configs, candidates_.handicaps, num_scenarios, prepare});
  TILEOPS_CHECK(ErrorKind::kInternal, take(tuned.config, ConfigOrigin::kTuned),
                "{}: tuning took {}, which is no candidate", candidates_.implementation,
                to_string(tuned.config));
}

}  // namespace tileops::perf
