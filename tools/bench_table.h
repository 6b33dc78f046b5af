// SPDX-License-Identifier: Apache-2.0
// A benchmark's rows as a table for a person: text, or one HTML file that needs no other.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace tileops::tools {

/// A benchmark is {version, device, profile, rows}; rows as bench_row() makes them, perhaps with
/// `peers`, an object name -> {single_us, back_to_back_us} or {error}.
std::string bench_text(const nlohmann::ordered_json& benchmark);
/// The tables of several benchmarks. Every text of theirs is escaped.
std::string bench_html(const nlohmann::ordered_json& benchmarks);

/// Whether every row was measured and every check passed.
bool bench_passed(const nlohmann::ordered_json& benchmark);

}  // namespace tileops::tools
