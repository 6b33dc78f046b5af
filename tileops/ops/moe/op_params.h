// SPDX-License-Identifier: Apache-2.0
// Reading an op's parameters by name, as from_params gets them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tileops/core/value.h"

namespace tileops {

/// The parameter, or `otherwise` where it is not given. Errors: kType.
int64_t int_param(const Params& params, std::string_view name, int64_t otherwise);
double float_param(const Params& params, std::string_view name, double otherwise);
bool bool_param(const Params& params, std::string_view name, bool otherwise);
/// The parameter, or none where it is not given or None. Errors: kType.
std::optional<DType> dtype_param(const Params& params, std::string_view name);
/// The spec's value: None for none.
Value dtype_value(std::optional<DType> dtype);

}  // namespace tileops
