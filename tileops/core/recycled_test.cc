// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/recycled.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace tileops {
namespace {

template <int kOf>
struct Object {
  std::array<char, 2000> bytes{};
};

TEST(Recycling, AThreadUsesItsBlocksAgain) {
  using Mine = Object<0>;
  const RecyclingAllocator<Mine> allocator;
  std::shared_ptr<Mine> object = std::allocate_shared<Mine>(allocator);
  const Mine* const address = object.get();
  object.reset();
  object = std::allocate_shared<Mine>(allocator);
  EXPECT_EQ(object.get(), address);
  EXPECT_NE(std::allocate_shared<Mine>(allocator).get(), address) << "which is in use";
}

TEST(Recycling, MoreThanItKeepsIsFreed) {
  using Mine = Object<1>;
  const RecyclingAllocator<Mine> allocator;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<Mine>> objects;
    std::set<const Mine*> addresses;
    for (size_t i = 0; i < 3 * FreeBlocks::kMax; ++i) {
      objects.push_back(std::allocate_shared<Mine>(allocator));
      addresses.insert(objects.back().get());
    }
    EXPECT_EQ(addresses.size(), objects.size());
  }
}

TEST(Recycling, AnotherThreadMayFree) {
  using Mine = Object<2>;
  std::shared_ptr<Mine> object = std::allocate_shared<Mine>(RecyclingAllocator<Mine>());
  const Mine* const address = object.get();
  std::thread([&] {
    object.reset();
    EXPECT_EQ(std::allocate_shared<Mine>(RecyclingAllocator<Mine>()).get(), address);
  }).join();
}

/// Dies with its thread, after the thread's free blocks.
struct Late {
  std::shared_ptr<Object<3>> object;
};

TEST(Recycling, WhatOutlivesAThreadsBlocksIsFreed) {
  using Mine = Object<3>;
  std::thread([] {
    thread_local Late late;  // made first, so it dies last
    late.object = std::allocate_shared<Mine>(RecyclingAllocator<Mine>());
    std::allocate_shared<Mine>(RecyclingAllocator<Mine>()).reset();
  }).join();
}

}  // namespace
}  // namespace tileops
