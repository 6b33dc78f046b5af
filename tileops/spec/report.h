// SPDX-License-Identifier: Apache-2.0
// Where the readers of a spec file put what is wrong with it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tileops/spec/validator.h"

namespace tileops::spec {

/// A field of an entry, for diagnostics.
struct Place {
  std::string entry;
  std::string field;
  int line = 0;
  Place at(std::string_view name, int at_line) const {
    std::string path = field.empty() ? std::string(name) : field + "." + std::string(name);
    return {entry, std::move(path), at_line > 0 ? at_line : line};
  }
};

class Report {
 public:
  explicit Report(std::string source) : source_(std::move(source)) {}
  /// Names and messages are kept to one readable line, whatever the file holds.
  void add(std::string_view code, const Place& place, std::string_view message);
  const std::string& source() const { return source_; }
  bool clean() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  /// Sorted by source, line, code.
  std::vector<Diagnostic> sorted() const;

 private:
  std::string source_;
  std::vector<Diagnostic> items_;
};

/// One line of the table of codes, as docs/spec.md shows it.
struct CodeInfo {
  std::string_view code;
  std::string_view meaning;
};
/// Every code that the validator can give, in order.
std::span<const CodeInfo> diagnostic_codes();

}  // namespace tileops::spec
