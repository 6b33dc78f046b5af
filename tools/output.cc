// SPDX-License-Identifier: Apache-2.0
#include "tools/output.h"

#include <unistd.h>

#include <cstdio>

#include <fmt/format.h>

namespace tileops::tools {
namespace {

bool progress_is_shown() {
  static const bool shown = isatty(STDERR_FILENO) == 1;
  return shown;
}

constexpr std::string_view kClearLine = "\r\033[K";

}  // namespace

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void progress(std::string_view text) {
  if (progress_is_shown()) fmt::print(stderr, "{}{} …", kClearLine, text);
}

void clear_progress() {
  if (progress_is_shown()) fmt::print(stderr, "{}", kClearLine);
}

std::string facts_text(const Tensor& tensor) {
  if (!tensor.defined()) return "absent";
  return fmt::format("{}{}", dtype_name(tensor.dtype()), to_string(tensor.shape()));
}

}  // namespace tileops::tools
