// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/tuning_table.h"

#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include <nlohmann/json.hpp>

#include "tileops/core/cache_folder.h"
#include "tileops/core/check.h"
#include "tileops/core/embedded.h"
#include "tileops/core/log.h"
#include "tileops/core/shared_folder.h"
#include "tileops/cpu/features.h"
#include "tileops/cpu/parallel.h"
#include "tileops/perf/profile.h"

namespace tileops::perf {
namespace {

using Json = nlohmann::ordered_json;
using Entries = std::map<std::string, TunedConfig>;  // by entry_name

std::string entry_name(const TuningKey& key) { return key.implementation + "\n" + key.bucket; }

/// Tables of this process: the user's by its path, the shipped ones by device.
struct Tables {
  std::mutex mutex;  // guards all
  std::map<std::string, Entries> user;
  std::map<std::string, Entries> shipped;
  bool shipped_are_read = false;
  bool warned = false;
};

Tables& tables() {
  static auto& instance = *new Tables;
  return instance;
}

Json json_of(const Params& config) {
  Json json = Json::object();
  for (const auto& [name, value] : config) {
    if (const auto* number = value.as_int()) {
      json[name] = *number;
    } else {
      json[name] = to_string(value);
    }
  }
  return json;
}

Params config_of(const Json& json) {
  Params config;
  for (const auto& [name, value] : json.items()) {
    if (value.is_number_integer()) {
      config.set(name, value.get<int64_t>());
    } else {
      config.set(name, value.get<std::string>());
    }
  }
  return config;
}

Json json_of(const TuningEntry& entry) {
  return {{"implementation", entry.key.implementation},
          {"bucket", entry.key.bucket},
          {"config", json_of(entry.tuned.config)},
          {"time_us", entry.tuned.time_us},
          {"default_us", entry.tuned.default_us}};
}

Entries by_name(const std::vector<TuningEntry>& list) {
  Entries entries;
  for (const TuningEntry& entry : list)
    entries.insert_or_assign(entry_name(entry.key), entry.tuned);
  return entries;
}

/// The entries of a file; none where it is absent, of another version or damaged.
Entries read_table(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return by_name(parse_tuning_table(text, path));
  } catch (const Error& error) {
    warn(fmt::format("{}; it counts as empty until a tuning writes it anew", error.what()));
    return {};
  }
}

void read_shipped(Tables& t) {
  if (std::exchange(t.shipped_are_read, true)) return;
  for (const EmbeddedFile& file : embedded::tuned_files()) {
    for (const TuningEntry& entry : parse_tuning_table(file.text, file.path)) {
      t.shipped[entry.key.device].insert_or_assign(entry_name(entry.key), entry.tuned);
    }
  }
}

const TunedConfig* find_in(const Entries& entries, const TuningKey& key) {
  const auto it = entries.find(entry_name(key));
  return it == entries.end() ? nullptr : &it->second;
}

Entries& user_table(Tables& t, const std::string& path) {
  const auto [it, is_new] = t.user.try_emplace(path);
  if (is_new && !path.empty()) it->second = read_table(path);
  return it->second;
}

std::vector<TuningEntry> list_of(const std::string& device, const Entries& entries) {
  std::vector<TuningEntry> list;
  for (const auto& [name, tuned] : entries) {
    const size_t line = name.find('\n');
    list.push_back({{device, name.substr(0, line), name.substr(line + 1)}, tuned});
  }
  return list;
}

/// Why it could not be written; "" where it was.
std::string write_table(const std::string& path, const std::string& device,
                        const Entries& entries) {
  const int failure = write_file(path, tuning_table_json(device, list_of(device, entries)) + "\n");
  return failure == 0 ? "" : std::strerror(failure);
}

void warn_unwritable(Tables& t, const std::string& path, const std::string& reason) {
  if (std::exchange(t.warned, true)) return;
  warn(
      fmt::format("tuned configurations cannot be kept in {} ({}), so that each process measures "
                  "its own; name a folder that can be written with TILEOPS_CACHE_DIR",
                  path, reason));
}

}  // namespace

std::string tuning_device(const std::string& facts_name) {
  if (facts_name != "cpu") return facts_name;
  return fmt::format("{}, {} threads, {}", cpu_name(), cpu::num_threads(),
                     cpu::name_of(cpu::active_isa()));
}

std::string tuning_table_path(const std::string& device) {
  const std::string folder = cache_folder();
  if (folder.empty()) return "";
  std::string name;
  for (const char c : device) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_plain) {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  return fmt::format("{}/tuning/{}-{}.json", folder, name, TILEOPS_VERSION);
}

std::optional<TunedConfig> find_tuned(const TuningKey& key) {
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  if (const TunedConfig* kept = find_in(user_table(t, tuning_table_path(key.device)), key)) {
    return *kept;
  }
  read_shipped(t);
  const auto shipped = t.shipped.find(key.device);
  if (shipped == t.shipped.end()) return std::nullopt;
  const TunedConfig* found = find_in(shipped->second, key);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void reread_tuning_table(const std::string& device) {
  const std::string path = tuning_table_path(device);
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  for (auto& [name, kept] : read_table(path)) user_table(t, path).insert_or_assign(name, kept);
}

TunedConfig keep_tuned(const TuningKey& key, const TunedConfig& tuned, bool replace) {
  const std::string path = tuning_table_path(key.device);
  Tables& t = tables();
  std::lock_guard lock(t.mutex);
  Entries& entries = user_table(t, path);
  if (path.empty()) {
    entries.insert_or_assign(entry_name(key), tuned);
    return tuned;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const NameLock others(folder, path);
  Entries known = entries;  // what this process measured while nothing could be written stays
  for (auto& [name, kept] : read_table(path)) known.insert_or_assign(name, kept);
  const TunedConfig* kept = find_in(known, key);
  const TunedConfig result = kept != nullptr && !replace ? *kept : tuned;
  known.insert_or_assign(entry_name(key), result);
  const std::string reason = failed ? failed.message() : write_table(path, key.device, known);
  if (!reason.empty()) warn_unwritable(t, path, reason);
  entries = std::move(known);
  return result;
}

std::vector<TuningEntry> parse_tuning_table(std::string_view text, std::string_view source) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  TILEOPS_CHECK(ErrorKind::kValue, json.is_object() && json.contains("entries"),
                "{}: a tuning table is a JSON object with version, device and entries", source);
  try {
    const auto version = json.at("version").get<std::string>();
    TILEOPS_CHECK(ErrorKind::kValue, version == TILEOPS_VERSION,
                  "{}: the table is of version {}, the library of {}", source, version,
                  TILEOPS_VERSION);
    std::vector<TuningEntry> entries;
    for (const Json& each : json.at("entries")) {
      entries.push_back(
          {{json.at("device").get<std::string>(), each.at("implementation").get<std::string>(),
            each.at("bucket").get<std::string>()},
           {config_of(each.at("config")), each.at("time_us").get<double>(),
            each.at("default_us").get<double>()}});
    }
    return entries;
  } catch (const Json::exception& error) {
    raise(ErrorKind::kValue, "{}: malformed tuning table: {}", source, error.what());
  }
}

std::string tuning_table_json(const std::string& device, const std::vector<TuningEntry>& entries) {
  // An entry a line, so that a change of one is a change of a line.
  std::string text = fmt::format("{{\n\"version\": {},\n\"device\": {},\n\"entries\": [",
                                 Json(TILEOPS_VERSION).dump(), Json(device).dump());
  for (size_t i = 0; i < entries.size(); ++i) {
    text += fmt::format("{}\n{}", i == 0 ? "" : ",", json_of(entries[i]).dump());
  }
  return text + "\n]}";
}

}  // namespace tileops::perf
