// SPDX-License-Identifier: Apache-2.0
// NVTX ranges: what profilers show of the calls.
#pragma once

#include "tileops/core/call_path.h"

namespace tileops::cuda {

/// Pushes and pops a range a call, by NVTX's library, which is looked for at the first. Null unless a
/// profiler watches the process (NVTX_INJECTION64_PATH, which Nsight Systems and Nsight Compute
/// set).
const CallMarker* nvtx_marker();

}  // namespace tileops::cuda
