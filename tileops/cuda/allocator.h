// SPDX-License-Identifier: Apache-2.0
// The built-in CUDA allocator: stream-ordered, from a pool of the library's own on each device.
#pragma once

#include "tileops/core/allocator.h"

namespace tileops::cuda {

/// The process's allocator; finds the driver at its first allocation. Never destroyed.
/// A tensor must be gone before the stream that was current when it was made.
/// Memory that was given back stays in the pool until release_cached_memory. A default stream or an
/// OwnedStream keeps small blocks (1 MiB) and up to 64 MiB of larger ones for its next tensors, which
/// then cost no call of the driver. The larger ones go back to the pool where none of them fits the
/// next, and all kept ones where the driver has no memory left.
Allocator& stream_ordered_allocator();

/// Gives a device's unused pool memory back to the driver. Errors: kDevice.
void release_cached_memory(Device device);

}  // namespace tileops::cuda
