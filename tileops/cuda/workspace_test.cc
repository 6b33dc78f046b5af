// SPDX-License-Identifier: Apache-2.0
// Who shares a workspace and who does not, over a fake driver whose memory is the host's.
#include "tileops/cuda/workspace.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tileops/core/error_testing.h"
#include "tileops/cuda/fake_driver.h"
#include "tileops/cuda/graph.h"

namespace tileops::cuda {
namespace {

/// A stream that no other test uses: workspaces outlive the fake driver.
Stream fresh_stream(Device device = kCuda0) {
  static uintptr_t next = 0x1000;
  return {device, reinterpret_cast<void*>(next++)};
}

struct WorkspaceTest : ::testing::Test {
  FakeDriver fake;
};

TEST_F(WorkspaceTest, AStreamKeepsItsOwnAndOthersGetAnother) {
  const Stream stream = fresh_stream();
  const Workspace first = workspace(stream, 1000);
  for (int64_t i = 0; i < kZeroedBytes; ++i) ASSERT_EQ(first.zeroed[i], std::byte{0});
  std::memset(first.scratch, 1, 1000);
  const int64_t allocations = fake.live_allocations;
  EXPECT_EQ(workspace(stream, 1000).zeroed, first.zeroed);
  EXPECT_EQ(workspace(stream, 10).scratch, first.scratch);
  EXPECT_EQ(fake.live_allocations, allocations) << "a hit allocates nothing";
  EXPECT_NE(workspace(fresh_stream(), 1000).zeroed, first.zeroed);
  EXPECT_NE(workspace({kCuda1, stream.handle}, 1000).zeroed, first.zeroed);
}

TEST_F(WorkspaceTest, GrowsAtLeastTwofold) {
  const Stream stream = fresh_stream();
  constexpr int64_t kLarge = 25 << 20;
  const Workspace small = workspace(stream, kLarge);
  const Workspace large = workspace(stream, kLarge + 1);
  EXPECT_NE(large.zeroed, small.zeroed);
  EXPECT_EQ(workspace(stream, 2 * kLarge).zeroed, large.zeroed);
}

TEST_F(WorkspaceTest, WhatKernelsUsuallyAskForIsThereFromTheStart) {
  const Stream stream = fresh_stream();
  const Workspace first = workspace(stream, 1);
  EXPECT_EQ(workspace(stream, 23 << 20).zeroed, first.zeroed);
}

TEST_F(WorkspaceTest, AGraphHasItsOwnUntilItIsGone) {
  const Stream stream = fresh_stream();
  const Workspace eager = workspace(stream, 5000);
  Workspace captured;
  Workspace of_other;
  {
    const Graph graph = Graph::capture(stream, [&] {
      captured = workspace(stream, 5000);
      EXPECT_EQ(workspace(stream, 5000).zeroed, captured.zeroed) << "one a graph and stream";
    });
    Graph::capture(stream, [&] { of_other = workspace(stream, 5000); });
    EXPECT_NE(captured.zeroed, eager.zeroed);
    EXPECT_NE(of_other.zeroed, captured.zeroed) << "graphs may be replayed at the same time";
    EXPECT_EQ(workspace(stream, 5000).zeroed, eager.zeroed);
  }
  const int64_t allocations = fake.live_allocations;
  Graph::capture(stream, [&] { workspace(stream, 5000); });
  EXPECT_EQ(fake.live_allocations, allocations) << "what a graph gave back is used again";
}

TEST_F(WorkspaceTest, SaysWhatTheDriverRefused) {
  fake.fail("mem_alloc_from_pool_async", abi::Result::kOutOfMemory);
  const Stream stream = fresh_stream();
  EXPECT_EQ(error_of([&] { workspace(stream, 100000000); }).substr(0, 12), "MemoryError:");
  fake.succeed("mem_alloc_from_pool_async");
  EXPECT_NE(workspace(stream, 1000).zeroed, nullptr);
}

}  // namespace
}  // namespace tileops::cuda
