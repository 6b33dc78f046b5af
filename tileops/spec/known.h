// SPDX-License-Identifier: Apache-2.0
// What the registry holds beside entries, for the readers of this folder.
#pragma once

#include "tileops/spec/types.h"

namespace tileops::spec {

/// The types of all loaded files.
TypeTable known_types();

}  // namespace tileops::spec
