// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tileops/core/value.h"
#include "tileops/spec/entry.h"

namespace tileops::spec {

/// Parameters in the spec's order, their types checked, defaults filled in.
/// Errors: kType (unknown, missing, of another type), kValue.
Params checked_params(const Entry& entry, const Params& given);

}  // namespace tileops::spec
