// SPDX-License-Identifier: Apache-2.0
// Launches that are put off: what the driver gets, and when.
#include "tileops/cuda/launch_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "tileops/core/error_testing.h"
#include "tileops/cuda/allocator.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/event.h"
#include "tileops/cuda/fake_driver.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/setup.h"

namespace tileops::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct LaunchBatchTest : ::testing::Test {
  LaunchBatchTest() {
    install();
    release_cached_memory(kCuda0);
    fake.on_launch = [this](void** arguments) {
      values.push_back(*static_cast<const int*>(arguments[0]));
    };
  }
  ~LaunchBatchTest() override {
    set_batched_launches(true);
    release_cached_memory(kCuda0);
  }

  void launch_value(int value, uint32_t grid = 1, Stream stream = kStream) const {
    launch(functions()[0], {.grid = {grid}, .cta = {32}}, stream, value);
  }

  /// Three launches; values from `first` on.
  void batch(int first, Stream stream = kStream) const {
    const StreamGuard guard(stream);
    LaunchScope scope(kCuda0);
    for (int i = 0; i < 3; ++i) launch_value(first + i, 1, stream);
    scope.submit();
  }

  std::span<const Function> functions() const { return module.functions(); }

  FakeDriver fake;
  Module module{"gemm", {std::vector<std::byte>(4), {"_Zgemm"}}, kCuda0};
  Module other{"reduce", {std::vector<std::byte>(4), {"_Zreduce"}}, kCuda0};
  std::vector<int> values;
};

TEST_F(LaunchBatchTest, NothingReachesTheDriverBeforeSubmit) {
  LaunchScope scope(kCuda0);
  launch_value(1);
  launch_value(2);
  EXPECT_THAT(values, IsEmpty());
  scope.submit();
  EXPECT_THAT(values, ElementsAre(1, 2));
  scope.submit();
  EXPECT_THAT(values, ElementsAre(1, 2)) << "once";
  launch_value(3);
  scope.submit();
  EXPECT_THAT(values, ElementsAre(1, 2, 3)) << "the scope is still open";
}

TEST_F(LaunchBatchTest, TheSameKernelsAreOneGraphFromTheSecondTimeOn) {
  batch(1);
  EXPECT_EQ(fake.num_graph_launches, 0);
  batch(11);
  EXPECT_EQ(fake.num_graph_launches, 1);
  batch(21);
  EXPECT_EQ(fake.num_graph_launches, 2);
  EXPECT_EQ(fake.num_captures, 1U) << "one graph for all";
  EXPECT_THAT(values, ElementsAre(1, 2, 3, 11, 12, 13, 21, 22, 23));
}

TEST_F(LaunchBatchTest, OnlyWhatChangedIsSetAnew) {
  const auto run = [&](int first, int second, uint32_t grid) {
    LaunchScope scope(kCuda0);
    launch_value(first);
    launch_value(second, grid);
    scope.submit();
  };
  run(1, 2, 1);
  run(1, 2, 1);
  EXPECT_EQ(fake.num_params_set, 2) << "a new graph's";
  run(1, 2, 1);
  EXPECT_EQ(fake.num_params_set, 2);
  run(1, 3, 1);
  EXPECT_EQ(fake.num_params_set, 3);
  run(1, 3, 4);
  EXPECT_EQ(fake.num_params_set, 4);
  EXPECT_EQ(fake.launches.back().config.grid_x, 4U);
  run(5, 3, 4);
  EXPECT_EQ(fake.num_params_set, 5);
  EXPECT_THAT(values, ElementsAre(1, 2, 1, 2, 1, 2, 1, 3, 1, 3, 5, 3));
}

TEST_F(LaunchBatchTest, GridsAndSharedMemoryMayChange) {
  for (const uint32_t grid : {5U, 6U, 7U}) {
    LaunchScope scope(kCuda0);
    for (int i = 0; i < 2; ++i) {
      launch(functions()[0], {.grid = {grid}, .cta = {32 * grid}, .smem_bytes = 16 * grid}, kStream,
             0);
    }
    scope.submit();
    const abi::LaunchConfig& seen = fake.launches.back().config;
    EXPECT_EQ(seen.grid_x, grid);
    EXPECT_EQ(seen.cta_x, 32 * grid);
    EXPECT_EQ(seen.dynamic_smem_bytes, 16 * grid);
  }
  EXPECT_EQ(fake.num_graph_launches, 2);
}

TEST_F(LaunchBatchTest, OtherKernelsClustersAndOrdersAreOtherGraphs) {
  const auto run = [&](const Function& function, const LaunchShape& shape) {
    LaunchScope scope(kCuda0);
    launch_value(0);
    launch(function, shape, kStream, 0);
    scope.submit();
  };
  const LaunchShape plain{.grid = {2}, .cta = {32}};
  LaunchShape cluster = plain, overlap = plain;
  cluster.cluster = {2};
  overlap.order = LaunchOrder::kOverlapPrevious;
  for (int i = 0; i < 2; ++i) {
    run(functions()[0], plain);
    run(functions()[0], cluster);
    run(functions()[0], overlap);
    run(other.functions()[0], plain);
  }
  EXPECT_EQ(fake.num_captures, 4U);
  EXPECT_EQ(fake.num_graph_launches, 4);
}

TEST_F(LaunchBatchTest, AStreamHasItsOwnGraph) {
  const Stream stream{kCuda0, &values};
  batch(1);
  batch(2, stream);
  EXPECT_EQ(fake.num_graph_launches, 0);
  batch(3, stream);
  EXPECT_EQ(fake.num_graph_launches, 1);
  EXPECT_EQ(fake.launches.back().config.stream, static_cast<abi::Stream>(stream.handle));
}

TEST_F(LaunchBatchTest, ASingleLaunchIsNoGraph) {
  for (int i = 0; i < 3; ++i) {
    LaunchScope scope(kCuda0);
    launch_value(i);
    scope.submit();
  }
  EXPECT_THAT(values, ElementsAre(0, 1, 2));
  EXPECT_EQ(fake.num_captures, 0U);
}

TEST_F(LaunchBatchTest, WhatElseUsesTheDeviceComesAfterWhatWasPutOff) {
  const Tensor tensor = Tensor::empty({4}, DType::kU8, kCuda0);
  Event event(kCuda0);
  const OwnedStream stream(kCuda0);
  const std::function<void()> uses[] = {
      [&] { to_host(tensor); },
      [&] { fill_bytes(tensor.data(), 1, 4, kStream); },
      [&] { event.record(kStream); },
      [&] { event.block(kStream); },
      [&] { synchronize(kStream); },
      [&] { launch_value(-1, 1, stream); },
      [&] { Graph::capture(stream, [] {}).replay(kStream); },
      [&] { submit_launches(); },
  };
  for (const auto& use : uses) {
    values.clear();
    LaunchScope scope(kCuda0);
    launch_value(1);
    use();
    ASSERT_FALSE(values.empty());
    EXPECT_EQ(values[0], 1);
  }
}

TEST_F(LaunchBatchTest, MemoryIsGivenBackAfterTheLaunchesThatUseIt) {
  Tensor tensor = Tensor::empty({4 << 20}, DType::kU8, kCuda0);
  const void* address = tensor.data();
  LaunchScope scope(kCuda0);
  launch_value(1);
  tensor = Tensor();
  EXPECT_NE(Tensor::empty({4 << 20}, DType::kU8, kCuda0).data(), address) << "still in use";
  scope.submit();
  EXPECT_EQ(Tensor::empty({4 << 20}, DType::kU8, kCuda0).data(), address);
}

TEST_F(LaunchBatchTest, MemoryThatIsHeldBackIsGivenBackBeforeThereIsNone) {
  Tensor tensor = Tensor::empty({4 << 20}, DType::kU8, kCuda0);
  fake.memory_bytes = fake.live_bytes;
  LaunchScope scope(kCuda0);
  launch_value(1);
  tensor = Tensor();
  EXPECT_EQ(Tensor::empty({4 << 20}, DType::kU8, kCuda0).num_elements(), 4 << 20);
  EXPECT_THAT(values, ElementsAre(1)) << "before its memory is used again";
  EXPECT_THAT(error_of([] { Tensor::empty({5 << 20}, DType::kU8, kCuda0); }),
              HasSubstr("MemoryError: cuda:0: 5242880 bytes"));
}

TEST_F(LaunchBatchTest, APauseSubmitsAndPutsNothingOff) {
  LaunchScope scope(kCuda0);
  launch_value(1);
  {
    const LaunchPause pause;
    EXPECT_THAT(values, ElementsAre(1));
    launch_value(2);
    EXPECT_THAT(values, ElementsAre(1, 2));
    const LaunchPause again;
  }
  launch_value(3);
  EXPECT_THAT(values, ElementsAre(1, 2));
  scope.submit();
  EXPECT_THAT(values, ElementsAre(1, 2, 3));
  const LaunchPause outside;
}

TEST_F(LaunchBatchTest, MoreThanABatchHoldsGoesInParts) {
  using Large = std::array<int, 1024>;
  for (int round = 0; round < 2; ++round) {
    values.clear();
    LaunchScope scope(kCuda0);
    for (int i = 0; i < 40; ++i) {
      launch(functions()[0], {.grid = {1}, .cta = {32}}, kStream, Large{i});
    }
    for (int i = 40; i < 80; ++i) launch_value(i);
    scope.submit();
    ASSERT_EQ(values.size(), 80U);
    for (int i = 0; i < 80; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i);
  }
  EXPECT_GT(fake.num_graph_launches, 0);
}

TEST_F(LaunchBatchTest, NothingIsPutOffWhereItCannotBe) {
  const auto is_put_off = [&](Device device = kCuda0) {
    values.clear();
    LaunchScope scope(device);
    launch_value(1);
    return values.empty();
  };
  EXPECT_TRUE(is_put_off());
  EXPECT_FALSE(is_put_off(kCpuDevice));
  EXPECT_FALSE(is_put_off(kMetaDevice));
  fake.version = 12020;
  EXPECT_FALSE(is_put_off());
  fake.version = 12030;
  EXPECT_TRUE(is_put_off());
  set_batched_launches(false);
  EXPECT_FALSE(is_put_off());
  set_batched_launches(true);
  set_synchronous_launches(true);
  EXPECT_FALSE(is_put_off());
  set_synchronous_launches(false);
  EXPECT_TRUE(is_put_off());
}

TEST_F(LaunchBatchTest, InACaptureTheyBecomeAPartOfTheCallersGraph) {
  const OwnedStream stream(kCuda0);
  for (int i = 0; i < 2; ++i) {
    Graph::capture(stream, [&] {
      batch(1, stream);
      EXPECT_EQ(fake.captured.size(), 3U);
    });
  }
  EXPECT_EQ(fake.num_captures, 2U) << "the caller's";
  EXPECT_EQ(fake.num_graph_launches, 0);
}

/// Two launches, of which each counts on the other's being next to it.
struct LaunchBatchOverlap : LaunchBatchTest {
  static constexpr int kOverlaps = 100;

  void overlap(Stream stream = kStream) const {
    const StreamGuard guard(stream);
    LaunchScope scope(kCuda0);
    launch_value(1, 1, stream);
    const PutOff first = put_off_before(stream, sizeof(int));
    ASSERT_EQ(first.function, &functions()[0]);
    *static_cast<int*>(first.argument) += kOverlaps;
    launch_value(2 + kOverlaps, 1, stream);
    undo_overlap_if_apart([](void* argument) { *static_cast<int*>(argument) -= kOverlaps; });
    launch_value(3, 1, stream);
    scope.submit();
  }
};

TEST_F(LaunchBatchOverlap, HoldsInOneRequestAndIsUndoneWhereOthersMayComeBetween) {
  overlap();
  EXPECT_THAT(values, ElementsAre(1, 2, 3)) << "one by one";
  values.clear();
  overlap();
  EXPECT_THAT(values, ElementsAre(101, 102, 3)) << "one request";
  values.clear();
  batch(1);
  EXPECT_THAT(values, ElementsAre(1, 2, 3)) << "the next batch knows nothing of it";
}

TEST_F(LaunchBatchOverlap, HoldsInACapture) {
  const OwnedStream stream(kCuda0);
  const Graph graph = Graph::capture(stream, [&] { overlap(stream); });
  graph.replay(kStream);
  EXPECT_THAT(values, ElementsAre(101, 102, 3));
}

TEST_F(LaunchBatchOverlap, NothingIsBeforeWhatIsNotPutOffWithIt) {
  EXPECT_EQ(put_off_before(kStream, sizeof(int)).function, nullptr) << "no scope";
  LaunchScope scope(kCuda0);
  EXPECT_EQ(put_off_before(kStream, sizeof(int)).function, nullptr) << "the first";
  launch_value(1);
  EXPECT_NE(put_off_before(kStream, sizeof(int)).function, nullptr);
  EXPECT_EQ(put_off_before({kCuda0, &values}, sizeof(int)).function, nullptr) << "another stream";
  EXPECT_EQ(put_off_before(kStream, 1 << 20).function, nullptr) << "no room for both";
  scope.submit();
  EXPECT_EQ(put_off_before(kStream, sizeof(int)).function, nullptr) << "it is sent";
}

TEST_F(LaunchBatchTest, AnInnerScopeIsAPartOfTheOuter) {
  LaunchScope outer(kCuda0);
  launch_value(1);
  {
    LaunchScope inner(kCuda0);
    launch_value(2);
    inner.submit();
  }
  EXPECT_THAT(values, IsEmpty());
  outer.submit();
  EXPECT_THAT(values, ElementsAre(1, 2));
}

TEST_F(LaunchBatchTest, AnExceptionDropsWhatWasPutOff) {
  Tensor tensor = Tensor::empty({4 << 20}, DType::kU8, kCuda0);
  const void* address = tensor.data();
  EXPECT_EQ(error_of([&] {
              LaunchScope scope(kCuda0);
              launch_value(1);
              tensor = Tensor();
              throw Error(ErrorKind::kState, "between two stages");
            }),
            "RuntimeError: between two stages");
  EXPECT_THAT(values, IsEmpty());
  EXPECT_EQ(Tensor::empty({4 << 20}, DType::kU8, kCuda0).data(), address);
  batch(1);
  EXPECT_THAT(values, ElementsAre(1, 2, 3));
}

TEST_F(LaunchBatchTest, AFailureNamesTheKernelAndTheNextCallIsAsEver) {
  batch(1);
  for (const char* step : {"launch_kernel_ex", "graph_instantiate_with_flags"}) {
    fake.fail(step, abi::Result::kOutOfMemory);
    EXPECT_THAT(error_of([&] { batch(2); }), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY")) << step;
    EXPECT_FALSE(fake.capturing) << step;
    fake.succeed(step);
  }
  EXPECT_TRUE(fake.graphs.empty()) << "what failed is gone";
  batch(3);
  for (const char* step : {"graph_exec_kernel_node_set_params", "graph_launch"}) {
    fake.fail(step, abi::Result::kIllegalAddress);
    EXPECT_THAT(error_of([&] { batch(4); }), HasSubstr("gemm on cuda:0 (grid 1x1x1")) << step;
    fake.succeed(step);
    values.clear();
    batch(5);
    EXPECT_THAT(values, ElementsAre(5, 6, 7)) << step;
  }
}

TEST_F(LaunchBatchTest, AnotherThreadLaunchesForItself) {
  LaunchScope scope(kCuda0);
  launch_value(1);
  std::thread([&] { launch_value(2); }).join();
  EXPECT_THAT(values, ElementsAre(2));
  scope.submit();
  EXPECT_THAT(values, ElementsAre(2, 1));
}

TEST_F(LaunchBatchTest, OfManyGraphsTheLatestAreKept) {
  std::vector<char> handles(70);
  const auto stream = [&](size_t i) { return Stream{kCuda0, &handles[i]}; };
  for (size_t i = 0; i < handles.size(); ++i) {
    batch(0, stream(i));
    batch(0, stream(i));
  }
  EXPECT_EQ(fake.execs.size(), 64U);
  const uint64_t made = fake.num_captures;
  batch(0, stream(69));
  batch(0, stream(6));
  EXPECT_EQ(fake.num_captures, made);
  batch(0, stream(0));
  EXPECT_EQ(fake.num_captures, made + 1) << "an old one, made again";
  EXPECT_EQ(fake.execs.size(), 64U);
}

TEST_F(LaunchBatchTest, ReleasedGraphsAreMadeAgain) {
  batch(1);
  batch(2);
  EXPECT_EQ(fake.execs.size(), 1U);
  release_launch_graphs();
  EXPECT_TRUE(fake.execs.empty());
  batch(3);
  EXPECT_EQ(fake.num_graph_launches, 1) << "a first sight again";
  batch(4);
  EXPECT_EQ(fake.num_graph_launches, 2);
}

}  // namespace
}  // namespace tileops::cuda
