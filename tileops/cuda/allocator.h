// SPDX-License-Identifier: Apache-2.0
// The built-in CUDA allocator: stream-ordered, from a pool of the library's own on each device.
#pragma once

#include "tileops/core/allocator.h"

namespace tileops::cuda {

/// The process's allocator; finds the driver at its first allocation. Never destroyed.
/// A tensor must be gone before the stream that was current when it was made.
/// Memory that was given back stays in the pool until release_cached_memory; up to 1 MiB, with the
/// stream (a default one or an OwnedStream) that has it, so that the next tensor costs no call of
/// the driver.
Allocator& stream_ordered_allocator();

/// Gives a device's unused pool memory back to the driver. Errors: kDevice.
void release_cached_memory(Device device);

}  // namespace tileops::cuda
