// SPDX-License-Identifier: Apache-2.0
// What the allocator keeps and what it gives back, over a fake driver whose memory is the host's.
#include "tileops/cuda/allocator.h"

#include <gtest/gtest.h>

#include "tileops/cuda/fake_driver.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/kept_blocks.h"

namespace tileops::cuda {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kLarge = kMiB + 1;

struct AllocatorTest : ::testing::Test {
  AllocatorTest() { release_cached_memory(kCuda0); }            // what other tests left
  ~AllocatorTest() override { release_cached_memory(kCuda0); }  // before the fake's memory goes

  /// Blocks that a use of `bytes` leaves with the library.
  int64_t kept(Stream stream, size_t bytes) {
    const int64_t before = fake.live_allocations;
    void* data = allocator.allocate(bytes, stream);
    allocator.deallocate(data, bytes, stream);
    return fake.live_allocations - before;
  }

  /// A block of the default stream that is given back at once.
  void* use(size_t bytes) {
    void* data = allocator.allocate(bytes, kStream);
    allocator.deallocate(data, bytes, kStream);
    return data;
  }

  FakeDriver fake;
  Allocator& allocator = stream_ordered_allocator();
};

TEST_F(AllocatorTest, ASmallBlockServesTheNextOfItsSizeOnItsStream) {
  const Stream stream{kCuda0, nullptr};
  void* first = allocator.allocate(700, stream);
  allocator.deallocate(first, 700, stream);
  fake.fail("mem_alloc_from_pool_async", abi::Result::kUnknown);
  EXPECT_EQ(allocator.allocate(1000, stream), first) << "no call of the driver";
  EXPECT_ANY_THROW(allocator.allocate(1000, stream)) << "nobody else has it";
  allocator.deallocate(first, 1000, stream);
  EXPECT_ANY_THROW(allocator.allocate(2000, stream)) << "larger than the block";
  fake.succeed("mem_alloc_from_pool_async");
  const OwnedStream other(kCuda0);
  void* of_other = allocator.allocate(1000, other);
  EXPECT_NE(of_other, first);
  allocator.deallocate(of_other, 1000, other);
}

TEST_F(AllocatorTest, BlocksOfForeignStreamsGoBackAtOnce) {
  const Stream foreign{kCuda0, reinterpret_cast<void*>(0x77)};
  EXPECT_EQ(kept(foreign, 1000), 0);
  EXPECT_EQ(kept(foreign, kLarge), 0);
}

TEST_F(AllocatorTest, ALargeBlockServesWhatNeedsNearlyAllOfIt) {
  void* first = use(9 * kMiB);
  EXPECT_EQ(use(8 * kMiB), first);
  EXPECT_EQ(use(9 * kMiB), first) << "what it has is not forgotten";
  EXPECT_EQ(fake.num_allocations, 1);
  use(7 * kMiB);
  EXPECT_EQ(fake.num_allocations, 2);
}

TEST_F(AllocatorTest, TheSmallestLargeBlockThatFitsServes) {
  void* large = allocator.allocate(9 * kMiB, kStream);
  void* small = allocator.allocate(8 * kMiB, kStream);
  allocator.deallocate(small, 8 * kMiB, kStream);
  allocator.deallocate(large, 9 * kMiB, kStream);
  EXPECT_EQ(use(8 * kMiB), small);
  EXPECT_EQ(use(9 * kMiB), large);
}

TEST_F(AllocatorTest, LargeBlocksMakeRoomForOneThatNoneOfThemServes) {
  const int64_t before = fake.live_bytes;
  use(10 * kMiB);
  use(1000);
  void* data = allocator.allocate(20 * kMiB, kStream);
  EXPECT_EQ(fake.live_bytes - before, static_cast<int64_t>(20 * kMiB + 1024));
  allocator.deallocate(data, 20 * kMiB, kStream);
}

TEST_F(AllocatorTest, LargeBlocksAreKeptUpToABound) {
  const int64_t before = fake.live_bytes;
  std::vector<void*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(30 * kMiB, kStream));
  for (void* data : blocks) allocator.deallocate(data, 30 * kMiB, kStream);
  EXPECT_EQ(fake.live_bytes - before, static_cast<int64_t>(60 * kMiB));
  EXPECT_EQ(kept(kStream, 65 * kMiB), -2) << "makes room, and is not kept";
}

TEST_F(AllocatorTest, WhereTheDriverHasNoMemoryAllThatStreamsKeepGoesBack) {
  const OwnedStream other(kCuda0);
  EXPECT_EQ(kept(other, 10 * kMiB), 1);
  EXPECT_EQ(kept(other, 1000), 1);
  fake.memory_bytes = fake.live_bytes + static_cast<int64_t>(5 * kMiB);
  const int64_t synchronized = fake.num_synchronized;
  void* data = allocator.allocate(12 * kMiB, kStream);
  EXPECT_EQ(fake.num_synchronized - synchronized, 1) << "the free of another stream is waited for";
  EXPECT_ANY_THROW(allocator.allocate(12 * kMiB, kStream));
  allocator.deallocate(data, 12 * kMiB, kStream);
}

TEST_F(AllocatorTest, WhatAStreamKeepsIsBoundedAndGoesWithIt) {
  const int64_t before = fake.live_allocations;
  {
    const OwnedStream stream(kCuda0);
    std::vector<void*> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(allocator.allocate(5000, stream));
    for (void* data : blocks) allocator.deallocate(data, 5000, stream);
    EXPECT_EQ(fake.live_allocations - before, 32);
    EXPECT_EQ(kept(stream, kLarge), 1);
  }
  EXPECT_EQ(fake.live_allocations, before);
}

TEST(KeptBlocks, AClosedStreamKeepsNothingUntilItIsOpenAgain) {
  char block = 0;
  const Stream stream{kCuda0, &block};
  KeptBlocks blocks;
  blocks.open(stream);
  EXPECT_TRUE(blocks.keep(stream, &block, 1000));
  EXPECT_EQ(blocks.close(stream).size(), 1U);
  EXPECT_FALSE(blocks.keep(stream, &block, 1000));
  EXPECT_EQ(blocks.take(stream, 1000), nullptr);
  blocks.open(stream);
  EXPECT_EQ(blocks.take(stream, 1000), nullptr);
  EXPECT_TRUE(blocks.keep(stream, &block, 1000));
  EXPECT_EQ(blocks.take(stream, 1000), &block);
}

TEST_F(AllocatorTest, ReleasingFreesAllThatIsKept) {
  EXPECT_EQ(kept({kCuda0, nullptr}, 1000), 1);
  const int64_t before = fake.live_allocations;
  release_cached_memory(kCuda0);
  EXPECT_LT(fake.live_allocations, before);
  EXPECT_EQ(kept({kCuda0, nullptr}, 1000), 1);
}

TEST_F(AllocatorTest, ACaptureNeitherTakesNorLeavesBlocks) {
  for (const size_t bytes : {size_t{1000}, kLarge}) {
    const OwnedStream stream(kCuda0);
    EXPECT_EQ(kept(stream, bytes), 1);
    const int64_t before = fake.live_allocations;
    Graph::capture(stream, [&] { EXPECT_EQ(kept(stream, bytes), 0); });
    EXPECT_EQ(fake.live_allocations, before);
    EXPECT_EQ(kept(stream, bytes), 0) << "the kept one serves again";
  }
}

TEST_F(AllocatorTest, WhatACapturedStreamKeepsStaysWhereTheDriverHasNoMemory) {
  const OwnedStream stream(kCuda0);
  EXPECT_EQ(kept(stream, kLarge), 1);
  fake.memory_bytes = fake.live_bytes;
  Graph::capture(stream, [&] { EXPECT_ANY_THROW(allocator.allocate(kLarge, kStream)); });
  EXPECT_EQ(kept(stream, kLarge), 0);
}

}  // namespace
}  // namespace tileops::cuda
