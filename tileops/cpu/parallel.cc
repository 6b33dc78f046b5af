// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

namespace tileops::cpu {

int num_threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

void run_tasks(int64_t num_tasks, int max_threads, TaskFn fn, void* context) {
  const int limit = max_threads > 0 ? std::min(max_threads, num_threads()) : num_threads();
  const int threads = static_cast<int>(std::min<int64_t>(num_tasks, limit));
  if (threads <= 1) {
    for (int64_t i = 0; i < num_tasks; ++i) fn(context, i, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;  // guards error
#pragma omp parallel num_threads(threads)
  {
    const int thread_idx = omp_get_thread_num();
    try {
      for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < num_tasks;
           i = next.fetch_add(1, std::memory_order_relaxed)) {
        fn(context, i, thread_idx);
      }
    } catch (...) {
      next.store(num_tasks, std::memory_order_relaxed);
      std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tileops::cpu
