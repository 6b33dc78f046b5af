// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/validator.h"

#include "tileops/spec/file_reader.h"
#include "tileops/spec/known.h"

namespace tileops::spec {

std::vector<Diagnostic> validate(std::span<const SpecText> texts, const ClassLookup&) {
  std::vector<Diagnostic> all;
  TypeTable types = known_types();
  for (const SpecText& text : texts) {
    Report report(text.source);
    const YamlNode file = read_yaml(text.text, report);
    read_file_types(file, types, report);
    for (FileEntry& each : read_file_entries(file, types, report)) {
      all.insert(all.end(), each.faults.begin(), each.faults.end());
    }
    const auto own = report.sorted();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace tileops::spec
