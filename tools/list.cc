// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tileops/op/op_class.h"
#include "tileops/spec/registry.h"
#include "tools/command.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

std::string_view status_of(const spec::Entry& entry) {
  if (!entry.implemented()) return "spec-only";
  return find_op_class(entry.name()) == nullptr ? "no class" : "implemented";
}

int list(const Common& common) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::string text;
  size_t width = 0;
  for (const std::string& name : spec::entry_names()) width = std::max(width, name.size());
  for (const std::string& name : spec::entry_names()) {
    const auto entry = spec::entry(name);
    const std::string_view kind = entry->is_composite() ? "composite" : "leaf";
    text += fmt::format("{:<{}}  {:<9}  {:<11}  {:<12}  {}\n", name, width, kind, status_of(*entry),
                        entry->family(), entry->summary());
    json.push_back({{"name", name},
                    {"kind", kind},
                    {"status", status_of(*entry)},
                    {"family", entry->family()},
                    {"summary", entry->summary()},
                    {"source", entry->source()}});
  }
  print(common.json ? json.dump(2) + "\n" : text);
  return kSuccess;
}

}  // namespace

void add_list(CLI::App& app, Chosen& chosen) {
  add_command(app, chosen, "list", "The known ops", [&chosen] { return list(chosen.common); });
}

}  // namespace tileops::tools
