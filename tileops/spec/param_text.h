// SPDX-License-Identifier: Apache-2.0
// Parameters from text, as to_string(Value) writes them: for command lines and file headers.
#pragma once

#include <string_view>

#include "tileops/core/value.h"
#include "tileops/spec/entry.h"

namespace tileops::spec {

/// The value of an entry's parameter: "3", "bfloat16", "None", "[1, 2]", "silu_and_mul",
/// "masked{max_m: 128}"; fields with a default may be left out. A text in double quotes is a
/// string. Errors: kValue naming op, parameter and fault.
Value parse_param(const Entry& entry, std::string_view param, std::string_view text);

}  // namespace tileops::spec
