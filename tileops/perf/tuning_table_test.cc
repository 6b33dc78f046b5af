// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/tuning_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/cache_folder.h"
#include "tileops/core/embedded.h"
#include "tileops/core/error_testing.h"
#include "tileops/core/log.h"

namespace tileops::perf {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> warnings;

TunedConfig config_of(int64_t tile) { return {{{"tile", tile}, {"loop", "fma"}}, 10, 12}; }

/// A cache folder of its own for each test, since tables are read once, and back.
class TuningTable : public ::testing::Test {
 protected:
  void SetUp() override {
    warnings.clear();
    handler_ = set_warning_handler([](std::string_view text) { warnings.emplace_back(text); });
  }
  void TearDown() override { set_warning_handler(handler_); }
  std::string path() const { return tuning_table_path(key_.device); }
  std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// What another process does.
  template <class Work>
  static void in_another_process(const Work& work) {
    const pid_t child = fork();
    if (child == 0) {
      work();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }

  const TuningKey key_{"Some Device (TM) 1", "op/impl", "bucket, 16 rows/E"};
  const testing::CacheFolder cache_{"tuning_table_test"};
  const std::string& folder_ = cache_.path();
  WarningHandler handler_ = nullptr;
};

TEST_F(TuningTable, KeepsAcrossProcesses) {
  EXPECT_FALSE(find_tuned(key_).has_value());
  in_another_process([&] { keep_tuned(key_, config_of(8)); });
  reread_tuning_table(key_.device);
  ASSERT_TRUE(find_tuned(key_).has_value());
  EXPECT_EQ(find_tuned(key_)->config, config_of(8).config);
  EXPECT_EQ(find_tuned(key_)->time_us, 10);
  TuningKey other = key_;
  other.bucket = "bucket, 32 rows/E";
  EXPECT_FALSE(find_tuned(other).has_value());
  other = key_;
  other.device = "Another Device";
  EXPECT_FALSE(find_tuned(other).has_value());
  EXPECT_THAT(path(), HasSubstr("/tuning/some_device_tm_1-"));
}

TEST_F(TuningTable, TheFirstToKeepDecidesForAll) {
  EXPECT_FALSE(find_tuned(key_).has_value());
  in_another_process([&] { keep_tuned(key_, config_of(8)); });
  EXPECT_EQ(keep_tuned(key_, config_of(16)).config, config_of(8).config);
  EXPECT_EQ(find_tuned(key_)->config, config_of(8).config);
  EXPECT_EQ(keep_tuned(key_, config_of(16), /*replace=*/true).config, config_of(16).config);
  EXPECT_EQ(find_tuned(key_)->config, config_of(16).config);
}

TEST_F(TuningTable, ManyProcessesLoseNoEntry) {
  constexpr int kProcesses = 8, kEach = 5;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    for (int i = 0; i < kEach; ++i) {
      TuningKey key = key_;
      key.bucket = std::to_string(p * kEach + i);
      keep_tuned(key, config_of(p));
    }
    _exit(0);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  EXPECT_EQ(parse_tuning_table(text(), path()).size(), size_t{kProcesses * kEach});
}

TEST_F(TuningTable, ADamagedFileCountsAsEmptyIsToldAndWrittenAnew) {
  std::filesystem::create_directories(folder_ + "/tuning");
  std::ofstream(path()) << "{\"version\": \"0.1.0\", \"device";
  EXPECT_FALSE(find_tuned(key_).has_value());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("it counts as empty until a tuning writes it anew"));
  keep_tuned(key_, config_of(8));
  EXPECT_EQ(parse_tuning_table(text(), path()).size(), 1u);
}

TEST_F(TuningTable, AnotherVersionsMeasurementsDoNotServe) {
  std::filesystem::create_directories(folder_ + "/tuning");
  std::ofstream(path()) << R"({"version": "0.0.1", "device": "d", "entries": []})";
  EXPECT_FALSE(find_tuned(key_).has_value());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("the table is of version 0.0.1, the library of"));
}

TEST_F(TuningTable, AFolderThatCannotBeWrittenIsToldAndMemoryServes) {
  std::ofstream(folder_) << "a file where the folder should be";
  EXPECT_EQ(keep_tuned(key_, config_of(8)).config, config_of(8).config);
  EXPECT_EQ(find_tuned(key_)->config, config_of(8).config);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("TILEOPS_CACHE_DIR"));
  TuningKey other = key_;
  other.bucket = "another";
  keep_tuned(other, config_of(9));
  EXPECT_EQ(warnings.size(), 1u) << "once";
  EXPECT_EQ(find_tuned(key_)->config, config_of(8).config);
}

TEST_F(TuningTable, MalformedEntriesAreNamedWithTheirSource) {
  const std::string head = R"({"version": ")" TILEOPS_VERSION R"(", "device": "d", "entries": )";
  EXPECT_THAT(error_of([&] { parse_tuning_table("[]", "t.json"); }),
              HasSubstr("t.json: a tuning table is a JSON object"));
  EXPECT_THAT(error_of([&] { parse_tuning_table(head + R"([{"bucket": "b"}]})", "t.json"); }),
              HasSubstr("t.json: malformed tuning table"));
  EXPECT_THAT(error_of([&] {
                parse_tuning_table(
                    head + R"([{"implementation": "i", "bucket": "b", "config": {"a": []},
                                        "time_us": 1, "default_us": 1}]})",
                    "t.json");
              }),
              HasSubstr("t.json: malformed tuning table"));
}

TEST(ShippedTables, AreOfThisVersionAndServe) {
  for (const EmbeddedFile& file : embedded::tuned_files()) {
    for (const TuningEntry& entry : parse_tuning_table(file.text, file.path)) {
      EXPECT_EQ(find_tuned(entry.key)->config, entry.tuned.config) << entry.key.bucket;
      EXPECT_LE(entry.tuned.time_us, entry.tuned.default_us) << entry.key.bucket;
    }
  }
}

}  // namespace
}  // namespace tileops::perf
