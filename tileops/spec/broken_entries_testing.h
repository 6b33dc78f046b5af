// SPDX-License-Identifier: Apache-2.0
// For tests: one whole entry that uses all of the language, and what is wrong with its variations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tileops::spec {

extern const char* const kWholeEntry;

/// The whole entry with `from` replaced by `to`; the text `to` alone where `from` is empty.
struct Broken {
  std::string_view code;
  std::string_view name;
  std::string from;
  std::string to;
};

const std::vector<Broken>& broken_entries();
std::string repeat(std::string_view part, int times);
std::string broken_text(const Broken& broken);

}  // namespace tileops::spec
