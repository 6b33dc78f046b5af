// SPDX-License-Identifier: Apache-2.0
// Memory that kernels need beside their tensors: one a stream, and one a captured graph.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tileops/core/stream.h"

namespace tileops::cuda {

/// Flags and counters at the start of a workspace.
inline constexpr int64_t kZeroedBytes = 64 << 10;

struct Workspace {
  std::byte* zeroed = nullptr;   // kZeroedBytes: zero before a kernel, which leaves them zero
  std::byte* scratch = nullptr;  // of any contents
};

/// The stream's workspace with at least so much scratch, aligned to 256 bytes. It is made, and
/// waited for, at the first ask, with 24 MiB at least; afterwards nothing is allocated. All
/// kernels of a stream share it, one after the other. A stream that is being captured has one of
/// the graph's own, which lives until the graph and all that was made of it are gone: graphs may
/// be replayed beside other work, but two instances of one graph may not run at the same time.
/// Thread safety: yes. Errors: kOutOfMemory, kInternal (the driver's).
Workspace workspace(Stream stream, int64_t scratch_bytes);

}  // namespace tileops::cuda
