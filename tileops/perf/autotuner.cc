// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/autotuner.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <optional>

#include "tileops/core/check.h"
#include "tileops/core/freeze.h"
#include "tileops/core/log.h"
#include "tileops/core/shared_folder.h"
#include "tileops/core/stream.h"
#include "tileops/cuda/launch.h"
#include "tileops/perf/timer.h"

namespace tileops::perf {
namespace {

constexpr double kNoiseBand = 0.02;
constexpr double kErrors = 4;      // standard errors that a gain must exceed
constexpr double kBudgetUs = 1e6;  // of a scenario's rounds
constexpr size_t kMinRounds = 5, kMaxRounds = 31;

std::atomic<bool> again{false};

/// A candidate's time in units of the default's, from pairs of the same rounds.
struct Ratio {
  double value = 1;
  double error = 0;  // standard error
};

Ratio ratio_of(const Rounds& rounds, size_t candidate) {
  Ratio total{0, 0};
  for (const auto& scenario : rounds) {
    std::vector<double> ratios;
    for (size_t i = 0; i < scenario[0].size(); ++i) {
      ratios.push_back(scenario[candidate][i] / scenario[0][i]);
    }
    // Of a normal distribution, either is the standard deviation; the larger guards against luck.
    const double spread = std::max((quantile(ratios, 0.75) - quantile(ratios, 0.25)) / 1.349,
                                   (quantile(ratios, 0.9) - quantile(ratios, 0.1)) / 2.563);
    total.value += median(ratios);
    total.error += 1.253 * spread / std::sqrt(static_cast<double>(ratios.size()));
  }
  const auto n = static_cast<double>(rounds.size());
  return {total.value / n, total.error / n};
}

Rounds measure(const TuningJob& job) {
  const RunCandidate run = job.prepare();
  CallTimer timer(job.device);
  const size_t n = job.candidates.size();
  Rounds rounds(job.num_scenarios, std::vector<std::vector<double>>(n));
  for (size_t s = 0; s < job.num_scenarios; ++s) {
    double once_us = 0;
    for (size_t c = 0; c < n; ++c) {
      run(s, c);  // builds what it needs
      once_us += timer.cold_us([&] { run(s, c); });
    }
    const auto fitting = static_cast<size_t>(kBudgetUs / std::max(once_us, 1.0));
    const size_t num_rounds = std::clamp(fitting, kMinRounds, kMaxRounds);
    for (size_t round = 0; round < num_rounds; ++round) {
      for (size_t i = 0; i < n; ++i) {
        const size_t c = (round + i) % n;
        rounds[s][c].push_back(timer.cold_us([&] { run(s, c); }));
      }
    }
  }
  return rounds;
}

double mean_of_medians(const Rounds& rounds, size_t candidate) {
  double sum = 0;
  for (const auto& scenario : rounds) sum += median(scenario[candidate]);
  return sum / static_cast<double>(rounds.size());
}

void check_may_measure(const TuningJob& job) {
  TILEOPS_CHECK(ErrorKind::kState, !is_frozen(),
                "{}: no configuration is kept for {} on {}, and measuring was ended by freeze(); "
                "tune it ahead with `tileops tune`",
                job.key.implementation, job.key.bucket, job.key.device);
  const bool capturing =
      job.device.type == DeviceType::kCUDA && cuda::is_capturing(current_stream(job.device));
  TILEOPS_CHECK(ErrorKind::kState, !capturing,
                "{}: no configuration is kept for {} on {}, and a stream capture allows no "
                "measuring: make one warm call before capturing, or tune ahead with `tileops tune`",
                job.key.implementation, job.key.bucket, job.key.device);
}

void tell(const TuningJob& job, const Rounds& rounds, size_t picked) {
  if (!log_on(Log::kBuild)) return;
  std::string text;
  for (size_t c = 0; c < job.candidates.size(); ++c) {
    text += fmt::format("{}{} {:.1f} us{}", c == 0 ? "" : ", ", to_string(job.candidates[c]),
                        mean_of_medians(rounds, c), c == picked ? " (taken)" : "");
  }
  log_line(Log::kBuild, fmt::format("tuned {} for {} on {}: {}", job.key.implementation,
                                    job.key.bucket, job.key.device, text));
}

/// The entry of a table where it is one of the candidates: another library's may not be.
std::optional<TunedConfig> known(const TuningJob& job) {
  if (measures_again()) return std::nullopt;
  std::optional<TunedConfig> found = find_tuned(job.key);
  const auto& all = job.candidates;
  if (!found || std::find(all.begin(), all.end(), found->config) == all.end()) return std::nullopt;
  return found;
}

}  // namespace

size_t pick_candidate(const Rounds& rounds, const std::vector<double>& handicaps) {
  const size_t n = rounds[0].size();
  std::vector<Ratio> ratios;
  double best = 1;
  for (size_t c = 0; c < n; ++c) {
    ratios.push_back(ratio_of(rounds, c));
    Ratio& r = ratios.back();
    if (!handicaps.empty()) r.value *= handicaps[c];
    const bool wins = c > 0 && r.value < 1 - std::max(kNoiseBand, kErrors * r.error);
    if (!wins) r.value = INFINITY;
    best = std::min(best, r.value);
  }
  for (size_t c = 1; c < n; ++c) {
    if (ratios[c].value <= best * (1 + kNoiseBand)) return c;
  }
  return 0;
}

TunedConfig tune(const TuningJob& job) {
  check_may_measure(job);
  static std::mutex one_at_a_time;  // of this process; the folder's lock is for the others
  const std::lock_guard alone(one_at_a_time);
  std::optional<NameLock> others;
  if (const std::string path = tuning_table_path(job.key.device); !path.empty()) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    std::error_code ignored;  // a folder that cannot be made is told by keep_tuned
    std::filesystem::create_directories(folder, ignored);
    others.emplace(folder, "measuring on " + job.key.device);
    reread_tuning_table(job.key.device);
  }
  if (const auto found = known(job)) return *found;
  const Rounds rounds = measure(job);
  const size_t picked = pick_candidate(rounds, job.handicaps);
  tell(job, rounds, picked);
  const bool replace = measures_again() || find_tuned(job.key).has_value();
  return keep_tuned(
      job.key,
      {job.candidates[picked], mean_of_medians(rounds, picked), mean_of_medians(rounds, 0)},
      replace);
}

MeasureAgain::MeasureAgain() { again.store(true); }
MeasureAgain::~MeasureAgain() { again.store(false); }
bool measures_again() { return again.load(); }

}  // namespace tileops::perf
