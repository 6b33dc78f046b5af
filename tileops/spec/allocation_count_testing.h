// SPDX-License-Identifier: Apache-2.0
// For tests: how often this thread has allocated.
#pragma once

#include <cstdint>

namespace tileops::spec {

int64_t allocation_count();

}  // namespace tileops::spec
