// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace tileops::spec {
namespace {

constexpr size_t kMaxMessage = 400;

std::string one_line(std::string_view text) {
  std::string line(text.substr(0, kMaxMessage));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return text.size() > kMaxMessage ? line + "…" : line;
}

}  // namespace

void Report::add(std::string_view code, const Place& place, std::string_view message) {
  items_.push_back({std::string(code), source_, place.line, one_line(place.entry),
                    one_line(place.field), one_line(message)});
}

std::vector<Diagnostic> Report::sorted() const {
  std::vector<Diagnostic> items = items_;
  std::sort(items.begin(), items.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.source, a.line, a.code, a.entry, a.field, a.message) <
           std::tie(b.source, b.line, b.code, b.entry, b.field, b.message);
  });
  return items;
}

std::string to_string(const Diagnostic& diagnostic) {
  std::string place = diagnostic.source;
  if (diagnostic.line > 0) place += fmt::format(":{}", diagnostic.line);
  std::string path = diagnostic.entry;
  if (!diagnostic.field.empty()) path += (path.empty() ? "" : ".") + diagnostic.field;
  return fmt::format("{}: {}{}{}: {}", place, diagnostic.code, path.empty() ? "" : " ", path,
                     diagnostic.message);
}

}  // namespace tileops::spec
