// SPDX-License-Identifier: Apache-2.0
// Launches of a composite as one request to the driver: a launch takes the host 3 to 4 us, a graph
// of five kernels whose arguments are set anew 5.
#pragma once

#include <span>

#include "tileops/core/launch_batch.h"
#include "tileops/core/stream.h"
#include "tileops/cuda/launch.h"

namespace tileops::cuda {

class BatchedLaunches;

/// While it lives, launches of this thread on the device's current stream are put off. The same
/// kernels in the same order, for the second time on, are one graph, kept for the stream, whose
/// kernels get the new grids and arguments. Nothing is put off on the CPU, inside another scope, in a
/// stream capture, with synchronous launches, by a driver before CUDA 12.3, under a profiler
/// (NVTX_INJECTION64_PATH; it would show one graph instead of kernels) and with
/// TILEOPS_BATCH_LAUNCHES=0.
class LaunchScope {
 public:
  explicit LaunchScope(Device device);
  /// Drops what was not submitted, as an exception leaves it.
  ~LaunchScope();
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;

  /// Sends what was put off. Errors: launch()'s.
  void submit();

 private:
  BatchedLaunches* batch_ = nullptr;  // of this thread; null where nothing is put off
};

/// For launch(): true where this thread's scope has put the launch off. Where it takes none of this
/// kind, what came before is submitted. Errors: the submitted launches'.
bool put_off(const Function& function, const LaunchShape& shape, Stream stream,
             std::span<const LaunchArgument> arguments);

/// Switches putting off on or off, for tests and measurements (at the start as
/// TILEOPS_BATCH_LAUNCHES and the profiler say).
void set_batched_launches(bool on);

/// Drops the graphs that are kept.
void release_launch_graphs();

}  // namespace tileops::cuda
