// SPDX-License-Identifier: Apache-2.0
// A spec file as entries: its `types` first, then every other key as an entry.
#pragma once

#include <memory>
#include <vector>

#include "tileops/spec/entry_impl.h"

namespace tileops::spec {

struct FileEntry {
  std::shared_ptr<const EntryImpl> entry;
  std::vector<Diagnostic> faults;  // sorted
};

/// Reads the types of a parsed file into `types`.
void read_file_types(const YamlNode& file, TypeTable& types, Report& report);
/// Reads the entries of a parsed file; what is wrong with the file itself goes to `report`.
std::vector<FileEntry> read_file_entries(const YamlNode& file, const TypeTable& types,
                                         Report& report);

}  // namespace tileops::spec
