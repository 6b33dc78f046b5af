// SPDX-License-Identifier: Apache-2.0
// What the composites' forwards wrap around their sub-ops, where those are this library's own.
#pragma once

#include <utility>

#include "tileops/cuda/launch_batch.h"
#include "tileops/op/call.h"

namespace tileops {

/// What `work` returns; on a GPU its launches go to the driver in one request, unless others' code
/// runs among them. A trace launches nothing, and its device need not be there. Errors: those of
/// `work` and of the launches.
template <class Work>
auto launch_together(const Call& call, Work&& work, bool runs_others_code = false) {
  const bool puts_off = CallMode::current() == nullptr && !runs_others_code;
  cuda::LaunchScope scope(puts_off ? call.device() : kMetaDevice);
  auto result = std::forward<Work>(work)();
  scope.submit();
  return result;
}

}  // namespace tileops
