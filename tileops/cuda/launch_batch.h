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
/// kernels get the new grids and arguments; in a stream capture they are captured. Nothing is put off
/// on the CPU, inside another scope, with synchronous launches, by a driver before CUDA 12.3, under a
/// profiler (NVTX_INJECTION64_PATH; it would show one graph instead of kernels) and with
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

/// A launch that this thread has put off, and its first argument, which may still be changed.
struct PutOff {
  const Function* function = nullptr;
  void* argument = nullptr;
};

/// The launch right before this thread's next one on the stream, which will have `bytes` of
/// arguments; none where anything else might come between them.
PutOff put_off_before(Stream stream, size_t bytes);

/// Says of the last two launches, just put off, that one counts on the other's being next to it.
/// Where they are sent one by one after all, each argument first goes through `undo`.
void undo_overlap_if_apart(void (*undo)(void* argument));

/// Switches putting off on or off, for tests and measurements (at the start as
/// TILEOPS_BATCH_LAUNCHES and the profiler say).
void set_batched_launches(bool on);

/// Drops the graphs that are kept.
void release_launch_graphs();

}  // namespace tileops::cuda
