// SPDX-License-Identifier: Apache-2.0
// For tests: errors are compared as users see them.
#pragma once

#include <string>

#include "tileops/core/error.h"

namespace tileops {

/// What `call` throws, as "ValueError: text"; "no error" where it returns.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error_kind_name(error.kind())) + ": " + error.what();
  }
  return "no error";
}

}  // namespace tileops
