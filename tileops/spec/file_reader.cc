// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/file_reader.h"

namespace tileops::spec {

void read_file_types(const YamlNode& file, TypeTable& types, Report& report) {
  if (!file.is_map()) {
    if (report.clean()) report.add("S105", {"", "", file.line}, "a spec file is a mapping");
    return;
  }
  if (const YamlNode* section = file.find("types")) read_types(*section, types, report);
}

std::vector<FileEntry> read_file_entries(const YamlNode& file, const TypeTable& types,
                                         Report& report) {
  std::vector<FileEntry> entries;
  std::string operator_namespace = "tileops";
  if (const YamlNode* node = file.find("namespace")) {
    operator_namespace = node->scalar;
    if (!is_identifier(node->scalar)) {
      report.add("S110", {"", "namespace", node->line}, "a namespace is one word");
    }
  }
  for (const auto& [name, node] : file.members) {
    if (name == "types" || name == "namespace") continue;
    Report own(report.source());
    auto entry = read_entry(name, node, operator_namespace, types, own);
    entries.push_back({std::move(entry), own.sorted()});
  }
  return entries;
}

}  // namespace tileops::spec
