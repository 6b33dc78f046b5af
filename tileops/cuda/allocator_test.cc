// SPDX-License-Identifier: Apache-2.0
// What the allocator keeps and what it gives back, over a fake driver whose memory is the host's.
#include "tileops/cuda/allocator.h"

#include <gtest/gtest.h>

#include "tileops/cuda/fake_driver.h"
#include "tileops/cuda/graph.h"

namespace tileops::cuda {
namespace {

constexpr size_t kLarge = (1 << 20) + 1;

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

TEST_F(AllocatorTest, LargeBlocksAndThoseOfForeignStreamsGoBackAtOnce) {
  EXPECT_EQ(kept({kCuda0, nullptr}, kLarge), 0);
  EXPECT_EQ(kept({kCuda0, reinterpret_cast<void*>(0x77)}, 1000), 0);
}

TEST_F(AllocatorTest, WhatAStreamKeepsIsBoundedAndGoesWithIt) {
  const int64_t before = fake.live_allocations;
  {
    const OwnedStream stream(kCuda0);
    std::vector<void*> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(allocator.allocate(5000, stream));
    for (void* data : blocks) allocator.deallocate(data, 5000, stream);
    EXPECT_EQ(fake.live_allocations - before, 32);
  }
  EXPECT_EQ(fake.live_allocations, before);
}

TEST_F(AllocatorTest, ReleasingFreesAllThatIsKept) {
  EXPECT_EQ(kept({kCuda0, nullptr}, 1000), 1);
  const int64_t before = fake.live_allocations;
  release_cached_memory(kCuda0);
  EXPECT_LT(fake.live_allocations, before);
  EXPECT_EQ(kept({kCuda0, nullptr}, 1000), 1);
}

TEST_F(AllocatorTest, ACaptureNeitherTakesNorLeavesBlocks) {
  const OwnedStream stream(kCuda0);
  EXPECT_EQ(kept(stream, 1000), 1);
  const int64_t before = fake.live_allocations;
  Graph::capture(stream, [&] { EXPECT_EQ(kept(stream, 1000), 0); });
  EXPECT_EQ(fake.live_allocations, before);
  EXPECT_EQ(kept(stream, 1000), 0) << "the kept one serves again";
}

}  // namespace
}  // namespace tileops::cuda
