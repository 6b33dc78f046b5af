// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/freeze.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace tileops {
namespace {

std::atomic<bool>& frozen() {
  static std::atomic<bool> flag = [] {
    const char* asked = std::getenv("TILEOPS_FREEZE");
    return asked != nullptr && std::string_view(asked) == "1";
  }();
  return flag;
}

}  // namespace

void freeze() { frozen().store(true, std::memory_order_relaxed); }
void thaw() { frozen().store(false, std::memory_order_relaxed); }
bool is_frozen() { return frozen().load(std::memory_order_relaxed); }

}  // namespace tileops
