// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <cstdlib>

#include "tileops/core/cache_folder.h"
#include "tileops/core/error.h"
#include "tileops/cpu/features.h"
#include "tileops/dispatch/backend.h"
#include "tileops/dispatch/kernel.h"
#include "tileops/dispatch/target.h"
#include "tileops/perf/profile.h"
#include "tools/command.h"
#include "tools/json_text.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

Json devices_json() {
  Json json = Json::array();
  for (const Device device : {kCpuDevice, Device{DeviceType::kCUDA, 0}}) {
    try {
      const DeviceFacts& facts = device_facts(device);
      json.push_back({{"device", to_string(device)},
                      {"name", facts.name},
                      {"processors", facts.num_processors},
                      {"archs", facts.archs}});
    } catch (const Error& error) {
      json.push_back({{"device", to_string(device)}, {"absent", error.what()}});
    }
  }
  return json;
}

Json backends_json() {
  Json failed = Json::array();
  for (const LoadFailure& failure : load_failures()) {
    failed.push_back({{"path", failure.path}, {"error", failure.error}});
  }
  const char* path = std::getenv(kBackendPathVariable);
  return {{"variable", kBackendPathVariable},
          {"path", path == nullptr ? "" : path},
          {"loaded", loaded_backends()},
          {"failed", std::move(failed)},
          {"targets", target_names()}};
}

Json profile_json(bool calibrate) {
  if (!calibrate && !perf::cpu_profile_is_measured()) return nullptr;
  if (calibrate) progress("measuring the CPU");
  const perf::DeviceProfile profile = perf::cpu_profile(calibrate);
  clear_progress();
  Json json = Json::parse(perf::to_json(profile));
  json["busy"] = profile.busy;
  return json;
}

Json env_json(bool calibrate) {
  return {
      {"version", TILEOPS_VERSION},
      {"build", TILEOPS_BUILD_TYPE},
      {"compiler", __VERSION__},
      {"libraries",
       {{"fmt", FMT_VERSION},
        {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                      NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
        {"CLI11", CLI11_VERSION}}},
      {"cpu",
       {{"name", perf::cpu_name()},
        {"instruction_set", cpu::name_of(cpu::active_isa())},
        {"supported", cpu::name_of(cpu::supported_isa())}}},
      {"devices", devices_json()},
      {"backends", backends_json()},
      {"cache_folder", cache_folder()},
      {"cpu_profile", profile_json(calibrate)}};
}

std::string listed(const Json& names) { return names.empty() ? "none" : joined(names); }

std::string profile_text(const Json& profile) {
  if (profile.is_null()) return "not measured yet; tileops env --calibrate measures";
  return fmt::format("read {:.1f} GB/s, in cache {:.1f}; peak {:.1f} GFLOP/s ({}){}",
                     profile["read_gbps"].get<double>(), profile["cache_gbps"].get<double>(),
                     profile["peak_gflops"].get<double>(), text_of(profile["peak_of"]),
                     profile["busy"].get<bool>() ? "; the machine was busy: measure again" : "");
}

std::string env_text(const Json& env) {
  std::string text = fmt::format("tileops {} ({}, gcc {})\n", text_of(env["version"]),
                                 text_of(env["build"]), text_of(env["compiler"]));
  text += fmt::format("cpu        {}, {} of {}\n", text_of(env["cpu"]["name"]),
                      text_of(env["cpu"]["instruction_set"]), text_of(env["cpu"]["supported"]));
  text += fmt::format("profile    {}\n", profile_text(env["cpu_profile"]));
  for (const Json& device : env["devices"]) {
    const bool absent = device.contains("absent");
    text +=
        fmt::format("device     {}: {}\n", text_of(device["device"]),
                    absent ? "none, " + text_of(device["absent"])
                           : fmt::format("{}, {} processors, {}", text_of(device["name"]),
                                         text_of(device["processors"]), listed(device["archs"])));
  }
  const Json& backends = env["backends"];
  text += fmt::format("backends   {} (path: {}={})\n", listed(backends["loaded"]),
                      text_of(backends["variable"]), text_of(backends["path"]));
  for (const Json& failure : backends["failed"]) {
    text += fmt::format("  failed   {}: {}\n", text_of(failure["path"]), text_of(failure["error"]));
  }
  text += fmt::format("targets    {}\n", listed(backends["targets"]));
  return text + fmt::format("cache      {}\n",
                            env["cache_folder"] == "" ? "none" : text_of(env["cache_folder"]));
}

int env(const Common& common, bool calibrate) {
  const Json json = env_json(calibrate);
  print(common.json ? json.dump(2) + "\n" : env_text(json));
  return kSuccess;
}

}  // namespace

void add_env(CLI::App& app, Chosen& chosen) {
  const auto calibrate = std::make_shared<bool>(false);
  CLI::App& command = add_command(app, chosen, "env", "Versions, devices, backends, folders",
                                  [&chosen, calibrate] { return env(chosen.common, *calibrate); });
  command.add_flag("--calibrate", *calibrate, "Measure the CPU's rates again");
}

}  // namespace tileops::tools
