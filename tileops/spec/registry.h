// SPDX-License-Identifier: Apache-2.0
// The known entries: those embedded in the library, and those of the files that users load.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/spec/entry.h"

namespace tileops::spec {

/// The entry of this name. Errors: kValue, with the nearest known names.
std::shared_ptr<const Entry> entry(std::string_view name);
/// The entry, or null.
std::shared_ptr<const Entry> find_entry(std::string_view name);
/// All names, sorted.
std::vector<std::string> entry_names();

/// Loads every entry (and sum type) of a YAML file or text, all or none.
/// Returns the names loaded. Loading the same text again is a no-op; another text under a known
/// name is an error. Thread safety: any thread.
/// Errors: kIo (unreadable), kSpec (malformed; the first diagnostic, with its code and place).
std::vector<std::string> load_spec_file(const std::string& path);
std::vector<std::string> load_spec_text(std::string_view text, std::string_view source);

}  // namespace tileops::spec
