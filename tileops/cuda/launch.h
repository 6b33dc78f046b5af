// SPDX-License-Identifier: Apache-2.0
// Putting a kernel on a stream. No allocation, no device fact read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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

/// A kernel's argument.
struct LaunchArgument {
  const void* data;
  size_t bytes;
};
inline constexpr size_t kMaxLaunchArguments = 8;

/// Launches at once, or with the others of this thread's LaunchScope.
/// Errors: kDevice (stream and kernel on two devices), kInternal with the kernel, the path of calls,
/// the shape and the driver's error; with synchronous launches also a fault while it runs.
void launch(const Function& function, const LaunchShape& shape, Stream stream,
            std::span<const LaunchArgument> arguments);

/// Launches with arguments by value, whose types must be those of the kernel.
template <class... Args>
void launch(const Function& function, const LaunchShape& shape, Stream stream,
            const Args&... args) {
  static_assert((std::is_trivially_copyable_v<Args> && ...));
  static_assert(sizeof...(Args) > 0 && sizeof...(Args) <= kMaxLaunchArguments);
  const LaunchArgument arguments[] = {{&args, sizeof(Args)}...};
  launch(function, shape, stream, std::span<const LaunchArgument>(arguments));
}

/// Launches at once; `arguments` are the addresses of the kernel's. Errors: launch()'s.
void launch_now(const Function& function, const LaunchShape& shape, Stream stream,
                void** arguments);

/// A launch for messages: the kernel, the path of calls, the device, the shape.
std::string describe(const Function& function, const LaunchShape& shape);

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
