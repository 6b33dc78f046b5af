// SPDX-License-Identifier: Apache-2.0
// Raising errors with formatted text. Private to the library's sources: it brings in fmt.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "tileops/core/error.h"

namespace tileops {

template <class... Args>
[[noreturn]] void raise(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tileops

/// Raises Error(kind, formatted text) unless the condition holds; the text is built only then.
#define TILEOPS_CHECK(kind, condition, ...) \
  do {                                      \
    if (!(condition)) [[unlikely]] {        \
      ::tileops::raise(kind, __VA_ARGS__);  \
    }                                       \
  } while (false)
