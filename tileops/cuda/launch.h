// SPDX-License-Identifier: Apache-2.0
// Putting a kernel on a stream. No allocation, no device fact read.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "tileops/core/stream.h"
#include "tileops/cuda/module.h"

namespace tileops::cuda {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dim3&) const = default;
};

/// When a kernel may begin: after all earlier work of the stream, or as soon as the kernel before
/// it allows (griddepcontrol), which it must then wait for itself.
enum class LaunchOrder { kAfterPrevious, kOverlapPrevious };

struct LaunchShape {
  Dim3 grid;  // in CTAs, a multiple of the cluster
  Dim3 cluster = {};
  Dim3 cta;                // in threads
  int64_t smem_bytes = 0;  // dynamic
  LaunchOrder order = LaunchOrder::kAfterPrevious;
  bool operator==(const LaunchShape&) const = default;
};

/// `arguments` are the addresses of the kernel's arguments.
/// Errors: kDevice (stream and kernel on two devices), kInternal with the kernel, the innermost
/// stage, the shape and the driver's error; with synchronous launches also a fault while it runs.
void launch(const Function& function, const LaunchShape& shape, Stream stream,
            std::span<void*> arguments);

/// Launches with arguments by value, whose types must be those of the kernel.
template <class... Args>
void launch(const Function& function, const LaunchShape& shape, Stream stream,
            const Args&... args) {
  static_assert(sizeof...(Args) > 0 && (std::is_trivially_copyable_v<Args> && ...));
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&args))...};
  launch(function, shape, stream, std::span<void*>(addresses));
}

/// Clusters of this shape (CTAs, where it has none) that the device holds at once: the bound of a
/// grid whose CTAs wait for each other. Errors: kInternal.
int max_resident_clusters(const Function& function, const LaunchShape& shape);

/// Whether each launch is waited for and its fault named (TILEOPS_SYNC=1, read once, or this).
bool synchronous_launches();
void set_synchronous_launches(bool on);

/// Whether the stream is being captured into a graph. Errors: kInternal.
bool is_capturing(Stream stream);
/// Waits for all work of a stream. Errors: kInternal with the fault of what ran.
void synchronize(Stream stream);

}  // namespace tileops::cuda
