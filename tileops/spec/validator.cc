// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/validator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tileops/spec/file_reader.h"
#include "tileops/spec/known.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/validator_passes.h"

namespace tileops::spec {
namespace {

struct File {
  Report report;
  YamlNode tree;
  std::vector<FileEntry> entries;
};

bool blocks_workloads(const Diagnostic& fault) {
  return fault.code < "S6";  // a workload needs the whole signature
}

/// Entries of these texts by name; a second one of a name is a fault of its file.
std::map<std::string, std::shared_ptr<const EntryImpl>> index_entries(std::vector<File>& files) {
  std::map<std::string, std::shared_ptr<const EntryImpl>> by_name;
  for (File& file : files) {
    for (const FileEntry& each : file.entries) {
      const auto [it, fresh] = by_name.try_emplace(each.entry->name, each.entry);
      if (fresh) continue;
      file.report.add(
          "S109", {each.entry->name, "", each.entry->line},
          fmt::format("{} is declared in {} too", each.entry->name, it->second->source));
    }
  }
  return by_name;
}

void read_files(std::span<const SpecText> texts, std::vector<File>& files) {
  TypeTable types = known_types();
  for (const SpecText& text : texts) {  // a file that is loaded already may have changed since
    std::erase_if(types, [&](const auto& known) { return known.second.source == text.source; });
  }
  for (const SpecText& text : texts) {
    File file{Report(text.source), {}, {}};
    file.tree = read_yaml(text.text, file.report);
    read_file_types(file.tree, types, file.report);
    files.push_back(std::move(file));
  }
  for (File& file : files) file.entries = read_file_entries(file.tree, types, file.report);
}

}  // namespace

std::vector<Diagnostic> validate(std::span<const SpecText> texts, const ClassLookup& classes) {
  std::vector<File> files;
  read_files(texts, files);
  const auto by_name = index_entries(files);
  const EntryLookup lookup = [&](std::string_view name) -> std::shared_ptr<const EntryImpl> {
    const auto it = by_name.find(std::string(name));
    if (it != by_name.end()) return it->second;
    const auto known = find_entry(name);
    if (known == nullptr) return nullptr;
    return {known, &known->impl()};
  };

  std::vector<Diagnostic> all;
  const auto take = [&](const std::vector<Diagnostic>& faults) {
    all.insert(all.end(), faults.begin(), faults.end());
  };
  for (File& file : files) {
    take(file.report.sorted());
    for (const FileEntry& each : file.entries) {
      Report report(file.report.source());
      check_composition(*each.entry, lookup, report);
      if (classes && each.entry->implemented) check_class(*each.entry, classes, report);
      if (std::none_of(each.faults.begin(), each.faults.end(), blocks_workloads)) {
        check_workloads(each.entry, report);
      }
      take(each.faults);
      take(report.sorted());
    }
  }
  std::sort(all.begin(), all.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.source, a.line, a.code, a.entry, a.field, a.message) <
           std::tie(b.source, b.line, b.code, b.entry, b.field, b.message);
  });
  return all;
}

}  // namespace tileops::spec
