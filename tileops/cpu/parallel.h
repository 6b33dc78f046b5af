// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

namespace tileops::cpu {

/// Threads that a parallel call would use now: OpenMP's maximum; 1 inside a parallel region, and in a
/// child of a process that has computed in parallel.
int num_threads();

using TaskFn = void (*)(void* context, int64_t task_idx, int thread_idx);

/// Runs tasks 0..num_tasks-1 on at most max_threads threads (0: num_threads()). Each thread starts
/// with a contiguous share, which it runs in order; one that has none left takes single tasks from
/// the end of the longest share. Inside a parallel region the caller runs them all, in order.
/// Errors: the first exception that a task throws is rethrown once no task runs; tasks that had
/// not begun are skipped.
void run_tasks(int64_t num_tasks, int max_threads, TaskFn fn, void* context);

/// run_tasks for a callable fn(task_idx, thread_idx), 0 <= thread_idx < max_threads.
template <class Fn>
void parallel_tasks(int64_t num_tasks, int max_threads, Fn&& fn) {
  run_tasks(
      num_tasks, max_threads,
      [](void* context, int64_t task_idx, int thread_idx) {
        (*static_cast<std::remove_reference_t<Fn>*>(context))(task_idx, thread_idx);
      },
      const_cast<void*>(static_cast<const void*>(&fn)));
}

/// Calls fn(begin, end) on disjoint ranges that cover [0, size), each of at most grain items.
template <class Fn>
void parallel_for(int64_t size, int64_t grain, Fn&& fn) {
  const int64_t num_ranges = (size + grain - 1) / grain;
  parallel_tasks(num_ranges, 0, [&](int64_t range_idx, int) {
    const int64_t begin = range_idx * grain;
    fn(begin, begin + grain < size ? begin + grain : size);
  });
}

}  // namespace tileops::cpu
