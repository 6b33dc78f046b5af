// SPDX-License-Identifier: Apache-2.0
// Autotuner: which of a kernel's configurations serves a kind of call best on this device.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tileops/core/device.h"
#include "tileops/perf/tuning_table.h"

namespace tileops::perf {

/// Candidates beside each other: us[scenario][candidate][round]. Candidates of one round ran one
/// after the other; candidate 0 is the untuned configuration.
using Rounds = std::vector<std::vector<std::vector<double>>>;

/// The candidate to take. One replaces the untuned configuration only where it is faster by more
/// than 2 % and more than four standard errors of the ratio; of several that are, those within
/// 2 % of the fastest tie, and the first of them is taken. A candidate's times count `handicaps`
/// times, where there are any: what it would cost elsewhere.
size_t pick_candidate(const Rounds& rounds, const std::vector<double>& handicaps = {});

/// Puts one call of a candidate, on the tensors of a scenario, on the device's current stream.
using RunCandidate = std::function<void(size_t scenario, size_t candidate)>;

struct TuningJob {
  TuningKey key;
  Device device;
  std::vector<Params> candidates;  // [0]: the untuned configuration
  std::vector<double> handicaps;   // of each, see pick_candidate; empty: 1
  size_t num_scenarios = 1;        // such as uniform and skewed routing
  /// Makes the tensors, once it is known that there is something to measure.
  std::function<RunCandidate()> prepare;
};

/// Measures the candidates with cold caches, in turn, until the medians are known or a second has
/// gone, and keeps the best one (keep_tuned). Of several processes that share a cache folder, one
/// measures at a time, and all take the first one's result.
/// Errors: kState (during a stream capture; after freeze()); what `prepare` and the calls throw: nothing is kept.
TunedConfig tune(const TuningJob& job);

/// While it lives, tables are not consulted by this process, and what is measured replaces what
/// they hold. Thread safety: one at a time.
class MeasureAgain {
 public:
  MeasureAgain();
  ~MeasureAgain();
  MeasureAgain(const MeasureAgain&) = delete;
  MeasureAgain& operator=(const MeasureAgain&) = delete;
};
bool measures_again();

}  // namespace tileops::perf
