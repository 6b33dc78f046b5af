// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/profile.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tileops/core/cache_folder.h"
#include "tileops/core/check.h"
#include "tileops/core/embedded.h"
#include "tileops/core/shared_folder.h"
#include "tileops/core/text_file.h"
#include "tileops/cpu/features.h"
#include "tileops/cpu/parallel.h"
#include "tileops/perf/cpu_ceilings.h"

namespace tileops::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kHeadroom = 1.25;  // of a ceiling above a measured rate: runs differ by the clock

/// Reads a profile's keys one by one, so that a fault names the key.
class Reader {
 public:
  Reader(const Json& json, std::string_view source) : json_(json), source_(source) {}

  double rate(const char* key, std::optional<double> otherwise = std::nullopt) const {
    const auto it = json_.find(key);
    if (it == json_.end() && otherwise) return *otherwise;
    TILEOPS_CHECK(ErrorKind::kValue, it != json_.end(), "{}: the profile lacks {}", source_, key);
    const bool is_rate =
        it->is_number() && std::isfinite(it->get<double>()) && it->get<double>() > 0;
    TILEOPS_CHECK(ErrorKind::kValue, is_rate, "{}: {} must be a number above 0, got {}", source_,
                  key, it->dump());
    return it->get<double>();
  }
  double size(const char* key) const { return json_.contains(key) ? rate(key) : 0; }
  std::string text(const char* key, std::optional<std::string> otherwise = std::nullopt) const {
    const auto it = json_.find(key);
    if (it == json_.end() && otherwise) return *otherwise;
    TILEOPS_CHECK(ErrorKind::kValue, it != json_.end() && it->is_string(),
                  "{}: the profile needs {} as a text", source_, key);
    return it->get<std::string>();
  }

 private:
  const Json& json_;
  std::string_view source_;
};

/// Where the measured profile is kept; "" where there is no cache folder.
std::string kept_path() {
  const std::string folder = cache_folder();
  return folder.empty() ? "" : folder + "/cpu_profile.json";
}

/// The kept profile, if it is this CPU's with this number of threads.
std::optional<DeviceProfile> kept_profile() {
  const std::string path = kept_path();
  if (path.empty() || !std::filesystem::exists(path)) return std::nullopt;
  try {
    DeviceProfile profile = load_profile(path);
    const bool is_ours = profile.device == cpu_name() && profile.threads == cpu::num_threads();
    return is_ours ? std::optional(std::move(profile)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // a torn or older file: measuring again replaces it
  }
}

/// Where it cannot be written, the next process measures again.
void keep(const DeviceProfile& profile) {
  const std::string path = kept_path();
  if (path.empty()) return;
  std::error_code failed;
  std::filesystem::create_directories(cache_folder(), failed);
  write_file(path, to_json(profile) + "\n");
}

DeviceProfile measure() {
  const CpuCeilings measured = measure_cpu_ceilings();
  DeviceProfile profile;
  profile.device = cpu_name();
  profile.threads = cpu::num_threads();
  profile.read_gbps = measured.read_gbps;
  profile.cache_gbps = measured.cache_gbps;
  profile.cache_bytes = measured.cache_bytes;
  profile.peak_gflops = measured.fma_gflops;
  profile.peak_of = "f32 FMA";
  if (measured.bf16_dot_gflops > profile.peak_gflops) {
    profile.peak_gflops = measured.bf16_dot_gflops;
    profile.peak_of = "bf16 dot";
  }
  if (measured.amx_gflops > profile.peak_gflops) {
    profile.peak_gflops = measured.amx_gflops;
    profile.peak_of = "bf16 AMX";
  }
  profile.busy = !measured.quiet;
  profile.ceiling_gbps = kHeadroom * std::max(measured.first_level_gbps, measured.cache_gbps);
  profile.ceiling_gflops = kHeadroom * profile.peak_gflops;
  return profile;
}

}  // namespace

double DeviceProfile::gbps(double bytes) const {
  return cache_gbps > 0 && bytes <= static_cast<double>(cache_bytes) ? cache_gbps : read_gbps;
}

DeviceProfile parse_profile(std::string_view text, std::string_view source) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  TILEOPS_CHECK(ErrorKind::kValue, json.is_object(), "{}: a profile is a JSON object", source);
  const Reader reader(json, source);
  DeviceProfile profile;
  profile.device = reader.text("device");
  profile.threads = static_cast<int>(reader.size("threads"));
  profile.read_gbps = reader.rate("read_gbps");
  profile.cache_gbps = reader.size("cache_gbps");
  profile.cache_bytes = static_cast<int64_t>(reader.size("cache_bytes"));
  profile.peak_gflops = reader.rate("peak_gflops");
  profile.peak_of = reader.text("peak_of", "");
  profile.ceiling_gbps =
      reader.rate("ceiling_gbps", kHeadroom * std::max(profile.read_gbps, profile.cache_gbps));
  profile.ceiling_gflops = reader.rate("ceiling_gflops", kHeadroom * profile.peak_gflops);
  return profile;
}

DeviceProfile load_profile(const std::string& path) { return parse_profile(read_text(path), path); }

std::string to_json(const DeviceProfile& profile) {
  Json json{{"device", profile.device}, {"read_gbps", profile.read_gbps}};
  if (profile.threads > 0) json["threads"] = profile.threads;
  if (profile.cache_gbps > 0) {
    json["cache_gbps"] = profile.cache_gbps;
    json["cache_bytes"] = profile.cache_bytes;
  }
  json["peak_gflops"] = profile.peak_gflops;
  json["peak_of"] = profile.peak_of;
  json["ceiling_gbps"] = profile.ceiling_gbps;
  json["ceiling_gflops"] = profile.ceiling_gflops;
  return json.dump(2);
}

std::vector<DeviceProfile> shipped_profiles() {
  std::vector<DeviceProfile> profiles;
  for (const EmbeddedFile& file : embedded::profile_files()) {
    profiles.push_back(parse_profile(file.text, file.path));
  }
  return profiles;
}

bool cpu_profile_is_measured() { return kept_profile().has_value(); }

DeviceProfile cpu_profile(bool again) {
  if (!again) {
    if (const auto kept = kept_profile()) return *kept;
  }
  DeviceProfile profile = measure();
  if (!profile.busy) keep(profile);
  return profile;
}

DeviceProfile profile_for(const DeviceFacts& facts) {
  if (facts.device.type == DeviceType::kCPU) return cpu_profile();
  std::vector<std::string> names;
  for (DeviceProfile& profile : shipped_profiles()) {
    if (profile.device == facts.name) return std::move(profile);
    names.push_back(profile.device);
  }
  raise(ErrorKind::kDevice, "no profile of {} ({}); shipped: {}; state one as JSON", facts.name,
        to_string(facts.device), fmt::join(names, ", "));
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

}  // namespace tileops::perf
