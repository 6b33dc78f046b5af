// SPDX-License-Identifier: Apache-2.0
// Makes CUDA devices known to the library.
#pragma once

#include "tileops/dispatch/kernel.h"

namespace tileops::cuda {

/// Sets the CUDA devices' facts provider, and the stream-ordered allocator unless one is set
/// already. Touches no driver: that waits for the first CUDA tensor. Idempotent.
void install();

/// Facts of a CUDA device: archs {"sm_90a", "sm_90"} at capability 9.0, its name, SMs and shared
/// memory of a CTA. Errors: kDevice (no driver, no such device).
DeviceFacts facts_of(Device device);

}  // namespace tileops::cuda
