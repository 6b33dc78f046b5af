// SPDX-License-Identifier: Apache-2.0
// JSON values as the subcommands print them for people.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tileops::tools {

using Json = nlohmann::ordered_json;

inline std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// A list of texts as "a, b"; "" of none.
inline std::string joined(const Json& list) {
  return fmt::format("{}", fmt::join(list.get<std::vector<std::string>>(), ", "));
}

}  // namespace tileops::tools
