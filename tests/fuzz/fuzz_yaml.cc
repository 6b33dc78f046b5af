// SPDX-License-Identifier: Apache-2.0
// Any text as a spec file: the validator says what is wrong with it, in one line each, and a text
// without faults loads.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tileops/core/error.h"
#include "tileops/spec/validator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tileops::spec;
  const SpecText text{"fuzz.yaml", {reinterpret_cast<const char*>(data), size}};
  const auto diagnostics = validate({&text, 1}, {});
  for (const Diagnostic& each : diagnostics) {
    const bool coded = each.code.size() == 4 && each.code[0] == 'S';
    if (!coded || each.message.empty() || each.source != "fuzz.yaml") std::abort();
  }
  return 0;
}
