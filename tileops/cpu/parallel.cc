// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

namespace tileops::cpu {
namespace {

/// Tasks [begin, end) that a thread still has to run, both ends in one word.
class alignas(64) TaskRange {
 public:
  void assign(uint32_t begin, uint32_t end) { word_ = pack(begin, end); }

  uint32_t size() const {
    const uint64_t word = word_.load(std::memory_order_relaxed);
    return end_of(word) - begin_of(word);
  }

  /// The first task for the range's own thread, the last one for another; -1 if none is left.
  int64_t take(bool own) {
    uint64_t word = word_.load(std::memory_order_relaxed);
    while (begin_of(word) != end_of(word)) {
      const uint64_t rest =
          own ? pack(begin_of(word) + 1, end_of(word)) : pack(begin_of(word), end_of(word) - 1);
      if (word_.compare_exchange_weak(word, rest, std::memory_order_relaxed)) {
        return own ? begin_of(word) : end_of(word) - 1;
      }
    }
    return -1;
  }

  void clear() { word_.store(0, std::memory_order_relaxed); }

 private:
  static uint64_t pack(uint32_t begin, uint32_t end) { return (uint64_t{begin} << 32) | end; }
  static uint32_t begin_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
  static uint32_t end_of(uint64_t word) { return static_cast<uint32_t>(word); }

  std::atomic<uint64_t> word_{0};
};

int64_t take_task(std::vector<TaskRange>& ranges, size_t own) {
  int64_t task = ranges[own].take(true);
  while (task < 0) {
    const auto fullest = std::max_element(
        ranges.begin(), ranges.end(),
        [](const TaskRange& x, const TaskRange& y) { return x.size() < y.size(); });
    if (fullest->size() == 0) return -1;
    task = fullest->take(false);
  }
  return task;
}

/// OpenMP's threads do not survive a fork, and a child that waits for them waits for ever: a child of
/// a process that has used them computes alone.
std::atomic<bool> has_threads{false};
std::atomic<bool> lost_threads{false};
[[maybe_unused]] const int at_fork =
    pthread_atfork(nullptr, nullptr, [] { lost_threads = has_threads.load(); });

void run_slice(int64_t first, int64_t num_tasks, int threads, TaskFn fn, void* context) {
  std::vector<TaskRange> ranges(static_cast<size_t>(threads));
  for (int64_t t = 0; t < threads; ++t) {
    ranges[static_cast<size_t>(t)].assign(static_cast<uint32_t>(num_tasks * t / threads),
                                          static_cast<uint32_t>(num_tasks * (t + 1) / threads));
  }
  std::exception_ptr error;
  std::mutex error_mutex;  // guards error
  has_threads.store(true, std::memory_order_relaxed);
#pragma omp parallel num_threads(threads)
  {
    const auto own = static_cast<size_t>(omp_get_thread_num());
    try {
      for (int64_t i = take_task(ranges, own); i >= 0; i = take_task(ranges, own)) {
        fn(context, first + i, static_cast<int>(own));
      }
    } catch (...) {
      for (TaskRange& range : ranges) range.clear();
      std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace

int num_threads() {
  const bool alone = omp_in_parallel() != 0 || lost_threads.load(std::memory_order_relaxed);
  return alone ? 1 : omp_get_max_threads();
}

void run_tasks(int64_t num_tasks, int max_threads, TaskFn fn, void* context) {
  const int limit = max_threads > 0 ? std::min(max_threads, num_threads()) : num_threads();
  const int threads = static_cast<int>(std::min<int64_t>(num_tasks, limit));
  if (threads <= 1) {
    for (int64_t i = 0; i < num_tasks; ++i) fn(context, i, 0);
    return;
  }
  constexpr int64_t kSlice = int64_t{1} << 31;  // task numbers of a slice fit 32 bits
  for (int64_t first = 0; first < num_tasks; first += kSlice) {
    run_slice(first, std::min(kSlice, num_tasks - first), threads, fn, context);
  }
}

}  // namespace tileops::cpu
