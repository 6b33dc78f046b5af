// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace tileops::cpu {
namespace {

TEST(Parallel, EveryTaskRunsOnceOnAKnownThread) {
  for (const int64_t size : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(size));
    parallel_tasks(size, 2, [&](int64_t i, int thread_idx) {
      EXPECT_GE(thread_idx, 0);
      EXPECT_LT(thread_idx, 2);
      ++runs[static_cast<size_t>(i)];
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST(Parallel, RangesCoverWithoutOverlap) {
  std::vector<std::atomic<int>> runs(101);
  parallel_for(101, 10, [&](int64_t begin, int64_t end) {
    EXPECT_LE(end - begin, 10);
    for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
}

TEST(Parallel, NestedCallsRunOnTheirCaller) {
  std::atomic<int> runs{0};
  parallel_tasks(4, 0, [&](int64_t, int) {
    parallel_tasks(5, 0, [&](int64_t, int thread_idx) {
      EXPECT_EQ(thread_idx, 0);
      ++runs;
    });
  });
  EXPECT_EQ(runs, 20);
}

TEST(Parallel, AnExceptionReachesTheCaller) {
  EXPECT_THROW(parallel_tasks(100, 0,
                              [](int64_t i, int) {
                                if (i == 3) throw std::runtime_error("three");
                              }),
               std::runtime_error);
}

TEST(Parallel, AChildOfAForkComputesAlone) {
  const int threads_before = num_threads();
  parallel_tasks(8, 2, [](int64_t, int) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // a child that waits for its parent's threads ends here
    std::atomic<int> runs{0};
    parallel_tasks(8, 2, [&](int64_t, int) { ++runs; });
    _exit(runs == 8 && num_threads() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(num_threads(), threads_before) << "the parent goes on with its threads";
}

}  // namespace
}  // namespace tileops::cpu
