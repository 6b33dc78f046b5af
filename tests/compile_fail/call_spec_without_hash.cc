// SPDX-License-Identifier: Apache-2.0
// Contract I1: a call spec that cannot be a key makes no kernel interface.
#include "tileops/dispatch/implementation.h"

namespace tileops {

struct KeylessCall {
  int64_t n = 0;
  bool operator==(const KeylessCall&) const = default;
#ifndef FAULT
  size_t hash() const { return 0; }
#endif
  std::string to_string() const { return ""; }
};

struct Keyless {
  static constexpr std::string_view kName = "keyless";
  using Call = KeylessCall;
  using Kernel = tileops::Kernel;
};

Implementation<Keyless> implementation();

}  // namespace tileops
