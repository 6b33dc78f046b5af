// SPDX-License-Identifier: Apache-2.0
// Heap allocations of this program, failing on request.
#pragma once

#include <cstdint>

namespace tileops::contract {

/// Of one thread.
struct FailingHeap {
  int64_t left = -1;    // allocations until one fails; -1: all succeed
  bool sticky = false;  // once one failed, so do those after it
  bool failed = false;  // since it was last set
};
FailingHeap& failing_heap();

}  // namespace tileops::contract
