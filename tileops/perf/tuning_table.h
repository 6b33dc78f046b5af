// SPDX-License-Identifier: Apache-2.0
// Tuning tables: configurations that were measured, kept between processes, and those that the
// library ships. docs/tuning.md describes the files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/value.h"

namespace tileops::perf {

/// What a configuration was measured for. Tables hold one library version's entries.
struct TuningKey {
  std::string device;          // "NVIDIA H200"; the CPU's as tuning_device() has it
  std::string implementation;  // "grouped_gemm/sm90_weights_on_m"
  std::string bucket;          // the calls that share a configuration
  bool operator==(const TuningKey&) const = default;
};

struct TunedConfig {
  Params config;
  double time_us = 0;     // of a call, the mean over routings of the medians
  double default_us = 0;  // of the untuned configuration in the same rounds
};

/// How tables name a device of these facts' name: "cpu" becomes the processor's model with its
/// number of threads and instruction set, any other stays.
std::string tuning_device(const std::string& facts_name);

/// The entry of a key in the user's table, else in a shipped one; none where neither has it.
std::optional<TunedConfig> find_tuned(const TuningKey& key);

/// Keeps an entry in this process and in the user's table. Where another process has kept one
/// meanwhile, that one stays and is returned, so that all processes take the same; `replace` puts
/// the new one in its place. A folder that cannot be written is warned of once.
TunedConfig keep_tuned(const TuningKey& key, const TunedConfig& tuned, bool replace = false);

/// Looks at the user's table anew: another process may have added to it since.
void reread_tuning_table(const std::string& device);

/// The user's table of a device: a file in cache_folder(); "" where there is no cache folder.
std::string tuning_table_path(const std::string& device);

/// A line of a table. Errors of parse_tuning_table: kValue with the source (not JSON, another
/// version, a malformed entry).
struct TuningEntry {
  TuningKey key;
  TunedConfig tuned;
};
std::vector<TuningEntry> parse_tuning_table(std::string_view json, std::string_view source);
std::string tuning_table_json(const std::string& device, const std::vector<TuningEntry>& entries);

}  // namespace tileops::perf
