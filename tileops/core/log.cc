// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/log.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace tileops {
namespace {

constexpr std::array<std::string_view, 4> kLogNames = {"dispatch", "build", "exec", "target"};

/// One write, so that lines of several threads stay whole.
void write_stderr(const std::string& line) { std::fwrite(line.data(), 1, line.size(), stderr); }

uint32_t bit_of(std::string_view name) {
  for (size_t i = 0; i < kLogNames.size(); ++i) {
    if (kLogNames[i] == name) return 1U << i;
  }
  write_stderr(fmt::format("tileops warning: TILEOPS_LOG: '{}' is not one of {}\n", name,
                           fmt::join(kLogNames, ", ")));
  return 0;
}

uint32_t mask_from_environment() {
  const char* variable = std::getenv("TILEOPS_LOG");
  std::string_view rest = variable == nullptr ? "" : variable;
  uint32_t mask = 0;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    rest = comma == rest.npos ? "" : rest.substr(comma + 1);
    if (!name.empty()) mask |= bit_of(name);
  }
  return mask;
}

void warn_on_stderr(std::string_view text) {
  write_stderr(fmt::format("tileops warning: {}\n", text));
}

constinit std::atomic<WarningHandler> warning_handler = warn_on_stderr;

}  // namespace

bool log_on(Log kind) {
  static const uint32_t mask = mask_from_environment();
  return (mask >> static_cast<int>(kind) & 1) != 0;
}

void log_line(Log kind, std::string_view text) {
  write_stderr(fmt::format("tileops {}: {}\n", kLogNames[static_cast<size_t>(kind)], text));
}

WarningHandler set_warning_handler(WarningHandler handler) {
  return warning_handler.exchange(handler == nullptr ? warn_on_stderr : handler);
}

void warn(std::string_view text) { warning_handler.load()(text); }

}  // namespace tileops
