// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/registry.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "tileops/core/check.h"
#include "tileops/core/embedded.h"
#include "tileops/core/text_file.h"
#include "tileops/spec/file_reader.h"
#include "tileops/spec/known.h"

namespace tileops::spec {
namespace {

struct Known {
  std::shared_mutex mutex;  // guards the rest
  TypeTable types;
  std::map<std::string, std::shared_ptr<const Entry>, std::less<>> entries;
  std::map<std::string, std::string, std::less<>> texts;  // entry name -> text it came from
};

void refuse(const std::vector<Diagnostic>& faults) {
  if (faults.empty()) return;
  const Diagnostic& first = faults.front();
  raise(ErrorKind::kSpec, "{}{}", to_string(first),
        faults.size() > 1 ? fmt::format(" (and {} more)", faults.size() - 1) : "");
}

/// Reads texts together into copies of what is known; nothing is changed where one is refused.
struct Loader {
  TypeTable types;
  std::vector<std::pair<std::shared_ptr<const EntryImpl>, std::string>> entries;

  void read(std::span<const SpecText> texts) {
    std::vector<std::pair<YamlNode, Report>> files;
    for (const SpecText& text : texts) {
      Report report(text.source);
      YamlNode file = read_yaml(text.text, report);
      read_file_types(file, types, report);
      refuse(report.sorted());
      files.emplace_back(std::move(file), std::move(report));
    }
    for (size_t i = 0; i < files.size(); ++i) {
      auto& [file, report] = files[i];
      for (FileEntry& each : read_file_entries(file, types, report)) {
        refuse(each.faults);
        entries.emplace_back(std::move(each.entry), texts[i].text);
      }
      refuse(report.sorted());
    }
  }
};

void add(Known& known, Loader& loader, std::vector<std::string>* names) {
  for (const auto& [entry, text] : loader.entries) {
    const auto it = known.texts.find(entry->name);
    TILEOPS_CHECK(ErrorKind::kSpec, it == known.texts.end() || it->second == text,
                  "{}: {} is known already, from {}", entry->source, entry->name,
                  known.entries.at(entry->name)->source());
  }
  for (auto& [entry, text] : loader.entries) {
    if (names != nullptr) names->push_back(entry->name);
    known.texts.try_emplace(entry->name, text);
    known.entries.try_emplace(entry->name, std::make_shared<const Entry>(entry));
  }
  known.types = std::move(loader.types);
}

Known& known() {
  static Known& instance = *[] {
    auto* fresh = new Known;  // lives as long as the process: entries outlive static destructors
    std::vector<SpecText> texts;
    for (const EmbeddedFile& file : embedded::spec_files()) {
      texts.push_back({std::string(file.path), std::string(file.text)});
    }
    Loader loader;
    loader.read(texts);
    add(*fresh, loader, nullptr);
    return fresh;
  }();
  return instance;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1] ? 1 : 0)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::vector<std::string> nearest(std::string_view name, std::vector<std::string> names) {
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  if (names.size() > 3) names.resize(3);
  return names;
}

}  // namespace

TypeTable known_types() {
  Known& all = known();
  std::shared_lock lock(all.mutex);
  return all.types;
}

std::shared_ptr<const Entry> find_entry(std::string_view name) {
  Known& all = known();
  std::shared_lock lock(all.mutex);
  const auto it = all.entries.find(name);
  return it == all.entries.end() ? nullptr : it->second;
}

std::shared_ptr<const Entry> entry(std::string_view name) {
  auto found = find_entry(name);
  TILEOPS_CHECK(ErrorKind::kValue, found != nullptr, "there is no spec entry {}; nearest: {}",
                name.substr(0, 100), fmt::join(nearest(name.substr(0, 100), entry_names()), ", "));
  return found;
}

std::vector<std::string> entry_names() {
  Known& all = known();
  std::shared_lock lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, unused] : all.entries) names.push_back(name);
  return names;
}

std::vector<std::string> load_spec_text(std::string_view text, std::string_view source) {
  Known& all = known();
  std::unique_lock lock(all.mutex);
  Loader loader{all.types, {}};
  const SpecText one{std::string(source), std::string(text)};
  loader.read({&one, 1});
  std::vector<std::string> names;
  add(all, loader, &names);
  return names;
}

std::vector<std::string> load_spec_file(const std::string& path) {
  return load_spec_text(read_text(path), path);
}

}  // namespace tileops::spec
