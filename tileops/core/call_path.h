// SPDX-License-Identifier: Apache-2.0
// What this thread computes, for layers that know no ops: a device's errors name it, profilers show
// it.
#pragma once

#include <string>

namespace tileops {

/// "FusedMoEFwdOp > routed_experts > expert_mlp > gate_up": the calls that are open on this thread,
/// the op's name and then stages; "" without any.
std::string call_path();

/// Who answers call_path(): the op layer.
void set_call_path_source(std::string (*source)());

/// Told of each call as it begins, by its stage (an outermost one by its op), and as it ends.
struct CallMarker {
  void (*begin)(const char* name);
  void (*end)();
};
/// The process's marker; null where there is none. Thread safety: both.
const CallMarker* call_marker();
/// `marker` lives until the process ends; null for none.
void set_call_marker(const CallMarker* marker);

}  // namespace tileops
