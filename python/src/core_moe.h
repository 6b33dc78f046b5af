// SPDX-License-Identifier: Apache-2.0
// What the MoE family takes beside tensors.
#pragma once

#include <any>

#include "core.h"

namespace tileops::python {

/// What a constructor takes for an injected name: an op, or an object with prepare and finalize.
/// Errors: kType for anything else.
std::any injected_from_python(nb::handle object);

}  // namespace tileops::python
