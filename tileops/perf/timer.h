// SPDX-License-Identifier: Apache-2.0
// Timing of calls on a device: one with cold caches, or several back to back.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tileops/core/device.h"

namespace tileops::perf {

/// Times calls on the current stream of a device: a GPU's by its own clock, the CPU's by the host's.
/// Not to be shared between threads.
class CallTimer {
 public:
  /// Errors: kDevice; kOutOfMemory (the flush buffer: twice the second-level cache).
  explicit CallTimer(Device device);
  ~CallTimer();
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  /// One call, after the second-level caches were emptied. Errors: what `call` throws.
  double cold_us(const std::function<void()>& call);
  /// One call as it comes. Errors: the same.
  double warm_us(const std::function<void()>& call);

 private:
  struct Clock;
  struct CpuClock;
  struct GpuClock;
  std::unique_ptr<Clock> clock_;
};

/// For tests: the clock, in microseconds, that times calls on the CPU; empty for the host's own.
/// Not to be set while calls are timed.
void set_cpu_clock_for_testing(std::function<double()> now_us);

using Calls = std::vector<std::function<void()>>;

/// Times of calls that do the same work on different inputs, in microseconds of one call.
struct CallTimes {
  double single = 0;         // median of single calls, each with cold second-level caches
  double single_spread = 0;  // between the quartiles
  double back_to_back = 0;   // median over rounds of all calls, one after the other
  double host = 0;           // of a call on a GPU: what the host takes; 0 on the CPU
  int count = 0;             // single calls
};
/// Calls each once, then times them for about `budget_us`. On a GPU, on a stream of their own and
/// replayed from CUDA graphs, so that the host's time is not in it, and after they have run long
/// enough for the clock to settle; with `rest_us` above 0, each sample begins after so long a rest
/// instead, as in a burst after idling, when a GPU's clock is higher. Errors: kDevice; what a call
/// throws.
CallTimes time_calls(Device device, const Calls& calls, double budget_us = 2e5, double rest_us = 0);

/// The host's part of an eager call, on the device's current stream: the median over batches that fit
/// in a launch queue. Errors: what a call throws.
double host_us(Device device, const Calls& calls);

/// The middle value; of two, the upper. `values` is not empty.
double median(std::vector<double> values);
/// The value below which a part `q` of them lies. `values` is not empty.
double quantile(std::vector<double> values, double q);

}  // namespace tileops::perf
