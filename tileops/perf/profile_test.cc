// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/profile.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tileops/core/cache_folder.h"
#include "tileops/core/error_testing.h"

namespace tileops::perf {
namespace {

TEST(Profile, StatedRatesAndDefaults) {
  const DeviceProfile profile =
      parse_profile(R"({"device": "X", "read_gbps": 100, "peak_gflops": 2000})", "x.json");
  EXPECT_EQ(profile.device, "X");
  EXPECT_DOUBLE_EQ(profile.ceiling_gbps, 125);
  EXPECT_DOUBLE_EQ(profile.ceiling_gflops, 2500);
  EXPECT_DOUBLE_EQ(profile.gbps(1), 100) << "no cache is stated";
}

TEST(Profile, WhatFitsInTheCachesIsReadFromThere) {
  DeviceProfile profile{.read_gbps = 30, .cache_gbps = 200, .cache_bytes = 1000};
  EXPECT_DOUBLE_EQ(profile.gbps(1000), 200);
  EXPECT_DOUBLE_EQ(profile.gbps(1001), 30);
}

TEST(Profile, JsonGivesItBack) {
  const DeviceProfile profile{.device = "a \"CPU\"",
                              .threads = 2,
                              .read_gbps = 32.25,
                              .cache_gbps = 200,
                              .cache_bytes = 4 << 20,
                              .peak_gflops = 355,
                              .peak_of = "f32 FMA",
                              .ceiling_gbps = 500,
                              .ceiling_gflops = 400};
  EXPECT_EQ(parse_profile(to_json(profile), "x"), profile);
}

TEST(Profile, FaultsNameSourceAndKey) {
  const auto fault = [](const char* text) {
    return error_of([&] { parse_profile(text, "p.json"); });
  };
  EXPECT_EQ(fault("[]"), "ValueError: p.json: a profile is a JSON object");
  EXPECT_EQ(fault("{"), "ValueError: p.json: a profile is a JSON object");
  EXPECT_EQ(fault("{}"), "ValueError: p.json: the profile needs device as a text");
  EXPECT_EQ(fault(R"({"device": "X"})"), "ValueError: p.json: the profile lacks read_gbps");
  EXPECT_EQ(fault(R"({"device": "X", "read_gbps": -1})"),
            "ValueError: p.json: read_gbps must be a number above 0, got -1");
  EXPECT_EQ(fault(R"({"device": "X", "read_gbps": "fast"})"),
            "ValueError: p.json: read_gbps must be a number above 0, got \"fast\"");
  EXPECT_EQ(error_of([] { load_profile("/nowhere/p.json"); }),
            "OSError: /nowhere/p.json: cannot be read");
}

TEST(Profile, TheH200IsShipped) {
  DeviceFacts facts{.device = {DeviceType::kCUDA, 0}, .name = "NVIDIA H200"};
  EXPECT_DOUBLE_EQ(profile_for(facts).read_gbps, 4300);
  EXPECT_DOUBLE_EQ(profile_for(facts).peak_gflops, 790000);
  facts.name = "NVIDIA X";
  EXPECT_EQ(error_of([&] { profile_for(facts); }),
            "ValueError: no profile of NVIDIA X (cuda:0); shipped: NVIDIA H200; state one as JSON");
}

/// Points the cache folder at a fresh one, and back.
class CpuProfile : public ::testing::Test {
 protected:
  void SetUp() override {
    former_ = cache_folder();
    std::filesystem::remove_all(folder_);
    setenv("TILEOPS_CACHE_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    setenv("TILEOPS_CACHE_DIR", former_.c_str(), 1);
  }
  void write_kept(const std::string& text) const {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/cpu_profile.json") << text;
  }
  std::string kept_text(const std::string& device) const {
    DeviceProfile profile{.device = device,
                          .threads = threads(),
                          .read_gbps = 1,
                          .peak_gflops = 2,
                          .ceiling_gbps = 3,
                          .ceiling_gflops = 4};
    return to_json(profile);
  }
  static int threads() { return device_facts(kCpuDevice).num_processors; }

  const std::string folder_ = ::testing::TempDir() + "tileops_cpu_profile_test";
  std::string former_;
};

TEST_F(CpuProfile, KeptOneOfThisCpuServes) {
  EXPECT_FALSE(cpu_profile_is_measured());
  write_kept(kept_text(cpu_name()));
  EXPECT_TRUE(cpu_profile_is_measured());
  EXPECT_DOUBLE_EQ(cpu_profile().peak_gflops, 2);
}

TEST_F(CpuProfile, AnotherCpusOrTornFileIsMeasuredAgain) {
  write_kept(kept_text("another CPU"));
  EXPECT_FALSE(cpu_profile_is_measured());
  write_kept(kept_text(cpu_name()).substr(0, 40));
  EXPECT_FALSE(cpu_profile_is_measured());
}

TEST_F(CpuProfile, MeasuredRatesAreInOrder) {
  const DeviceProfile profile = cpu_profile(/*again=*/true);
  EXPECT_GT(profile.read_gbps, 0);
  EXPECT_GT(profile.ceiling_gbps, profile.cache_gbps);
  EXPECT_GT(profile.ceiling_gflops, profile.peak_gflops);
  EXPECT_EQ(profile.device, cpu_name());
  EXPECT_EQ(cpu_profile_is_measured(), !profile.busy);
}

}  // namespace
}  // namespace tileops::perf
