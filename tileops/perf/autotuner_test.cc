// SPDX-License-Identifier: Apache-2.0
// What the autotuner takes, keeps and refuses; over stated times, by a clock that the candidates move.
#include "tileops/perf/autotuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>

#include "tests/support/cache_folder.h"
#include "tileops/core/error_testing.h"
#include "tileops/core/freeze.h"
#include "tileops/perf/config_choice.h"
#include "tileops/perf/timer.h"

namespace tileops::perf {
namespace {

using ::testing::HasSubstr;

/// Rounds of candidates whose times are these, with noise of a relative size.
Rounds rounds_of(const std::vector<std::vector<double>>& scenarios, double noise, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(1.0, noise);
  Rounds rounds;
  for (const std::vector<double>& times : scenarios) {
    rounds.emplace_back(times.size());
    for (size_t c = 0; c < times.size(); ++c) {
      for (int i = 0; i < 15; ++i) rounds.back()[c].push_back(times[c] * normal(engine));
    }
  }
  return rounds;
}

TEST(PickCandidate, TheFasterReplacesTheDefault) {
  EXPECT_EQ(pick_candidate(rounds_of({{100, 90, 80}}, 0.01, 1)), 2u);
  EXPECT_EQ(pick_candidate(rounds_of({{100, 80, 90}}, 0.01, 1)), 1u);
}

TEST(PickCandidate, TiesKeepTheDefault) {
  EXPECT_EQ(pick_candidate(rounds_of({{100, 100, 100}}, 0, 1)), 0u);
  EXPECT_EQ(pick_candidate(rounds_of({{100, 98.5, 99}}, 0, 1)), 0u) << "within 2 %";
  EXPECT_EQ(pick_candidate(rounds_of({{100}}, 0, 1)), 0u);
}

TEST(PickCandidate, RivalsThatTieGiveTheFirstOfThem) {
  EXPECT_EQ(pick_candidate(rounds_of({{100, 81, 80}}, 0, 1)), 1u);
  EXPECT_EQ(pick_candidate(rounds_of({{100, 90, 80}}, 0, 1)), 2u);
}

TEST(PickCandidate, NoiseNeverReplacesTheDefault) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    ASSERT_EQ(pick_candidate(rounds_of({{100, 100}, {50, 50}}, 0.02, seed)), 0u) << seed;
    ASSERT_EQ(pick_candidate(rounds_of({{100, 100}, {50, 50}}, 0.1, seed)), 0u) << seed;
  }
}

TEST(PickCandidate, AGainOnOneRoutingMustOutweighALossOnTheOther) {
  EXPECT_EQ(pick_candidate(rounds_of({{100, 80}, {100, 130}}, 0.005, 1)), 0u);
  EXPECT_EQ(pick_candidate(rounds_of({{100, 80}, {100, 105}}, 0.005, 1)), 1u);
}

TEST(PickCandidate, AHandicapIsAPartOfTheTime) {
  const Rounds rounds = rounds_of({{100, 90, 92}}, 0, 1);
  EXPECT_EQ(pick_candidate(rounds, {1, 1, 1}), 1u);
  EXPECT_EQ(pick_candidate(rounds, {1, 1.05, 1}), 2u) << "90 counts 94.5";
  EXPECT_EQ(pick_candidate(rounds, {1, 1.05, 1.05}), 1u);
  EXPECT_EQ(pick_candidate(rounds, {1, 1.1, 1.1}), 0u);
}

TEST(CallTimer, ACallOnTheCpuTakesAtLeastItsTime) {
  CallTimer timer(kCpuDevice);
  const auto nap = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  EXPECT_GE(timer.cold_us(nap), 2000);
  EXPECT_GE(timer.warm_us(nap), 2000);
}

/// A cache folder and a clock of its own, and back.
class Autotuner : public ::testing::Test {
 protected:
  void SetUp() override {
    set_cpu_clock_for_testing([this] { return now_us_; });
  }
  void TearDown() override {
    set_cpu_clock_for_testing({});
    thaw();
  }

  /// Candidate i takes costs_us[i].
  TuningJob job(const std::string& bucket) {
    TuningJob job{{"cpu of the test", "timed/cpu", bucket}, kCpuDevice};
    for (size_t i = 0; i < costs_us_.size(); ++i) {
      job.candidates.push_back({{"cost", static_cast<int64_t>(i)}});
    }
    job.num_scenarios = 2;
    job.prepare = [this] { return [this](size_t, size_t candidate) { run(candidate); }; };
    return job;
  }

  void run(size_t candidate) {
    ++runs_;
    now_us_ += costs_us_[candidate];
  }

  const testing::CacheFolder folder_{"autotuner_test"};
  std::vector<double> costs_us_ = {400, 40, 150};
  double now_us_ = 0;
  int runs_ = 0;
};

TEST_F(Autotuner, TheCheapestIsTakenKeptAndNotMeasuredAgain) {
  const TunedConfig tuned = tune(job("a"));
  EXPECT_EQ(tuned.config, (Params{{"cost", int64_t{1}}}));
  EXPECT_DOUBLE_EQ(tuned.default_us, 400);
  EXPECT_DOUBLE_EQ(tuned.time_us, 40);
  const int runs = runs_;
  EXPECT_EQ(tune(job("a")).config, tuned.config);
  EXPECT_EQ(runs_, runs) << "the table knows it";
  tune(job("b"));
  EXPECT_GT(runs_, runs) << "another bucket";
}

TEST_F(Autotuner, MeasuringAgainReplacesWhatIsKept) {
  tune(job("a"));
  costs_us_ = {400, 150, 40};
  EXPECT_EQ(tune(job("a")).config, (Params{{"cost", int64_t{1}}}));
  const MeasureAgain again;
  EXPECT_EQ(tune(job("a")).config, (Params{{"cost", int64_t{2}}}));
  EXPECT_EQ(find_tuned(job("a").key)->config, (Params{{"cost", int64_t{2}}}));
}

TEST_F(Autotuner, AKeptConfigurationThatIsNoCandidateIsMeasuredAnew) {
  keep_tuned(job("a").key, {{{"cost", int64_t{17}}}, 1, 1});
  EXPECT_EQ(tune(job("a")).config, (Params{{"cost", int64_t{1}}}));
  EXPECT_EQ(find_tuned(job("a").key)->config, (Params{{"cost", int64_t{1}}}));
}

TEST_F(Autotuner, WhatACandidateThrowsPassesAndNothingIsKept) {
  TuningJob broken = job("a");
  broken.prepare = [] {
    return [](size_t, size_t candidate) {
      if (candidate == 2) throw std::runtime_error("candidate 2 broke");
    };
  };
  EXPECT_THROW(tune(broken), std::runtime_error);
  EXPECT_FALSE(find_tuned(broken.key).has_value());
  EXPECT_EQ(tune(job("a")).config, (Params{{"cost", int64_t{1}}})) << "asked again";
}

TEST_F(Autotuner, FreezeAllowsATableAndNoMeasuring) {
  tune(job("a"));
  freeze();
  EXPECT_EQ(error_of([&] { tune(job("b")); }),
            "RuntimeError: timed/cpu: no configuration is kept for b on cpu of the test, and "
            "measuring was ended by freeze(); tune it ahead with `tileops tune`");
}

class Choice : public Autotuner {
 protected:
  ConfigChoice make(bool forced = false) {
    ConfigCandidates candidates{"timed/cpu", "c", job("c").candidates, forced};
    if (forced) candidates.configs = {{{"cost", int64_t{2}}}};
    return {std::move(candidates), "cpu of the test"};
  }
  void tune_it(ConfigChoice& choice) { choice.tune(kCpuDevice, 2, job("c").prepare); }
};

TEST_F(Choice, DefaultThenTunedThenATableForTheNext) {
  ConfigChoice first = make();
  EXPECT_EQ(first.index(), 0u);
  EXPECT_EQ(first.origin(), ConfigOrigin::kDefault);
  tune_it(first);
  EXPECT_EQ(first.index(), 1u);
  EXPECT_EQ(first.origin(), ConfigOrigin::kTuned);
  const int runs = runs_;
  tune_it(first);
  ConfigChoice second = make();
  EXPECT_EQ(second.index(), 1u);
  EXPECT_EQ(second.origin(), ConfigOrigin::kTable);
  tune_it(second);
  EXPECT_EQ(runs_, runs) << "idempotent, and a table's choice needs no measuring";
}

TEST_F(Choice, AForcedConfigurationStays) {
  ConfigChoice forced = make(true);
  EXPECT_FALSE(forced.tunable());
  tune_it(forced);
  EXPECT_EQ(forced.config(), (Params{{"cost", int64_t{2}}}));
  EXPECT_EQ(forced.origin(), ConfigOrigin::kForced);
  EXPECT_EQ(runs_, 0);
}

TEST_F(Choice, TuningThatThrowsLeavesTheDefault) {
  ConfigChoice choice = make();
  EXPECT_THROW(choice.tune(kCpuDevice, 1, []() -> RunCandidate { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(choice.origin(), ConfigOrigin::kDefault);
  tune_it(choice);
  EXPECT_EQ(choice.origin(), ConfigOrigin::kTuned);
}

}  // namespace
}  // namespace tileops::perf
