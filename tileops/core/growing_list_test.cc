// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/growing_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace tileops {
namespace {

using ::testing::ElementsAre;

TEST(GrowingList, HoldsWhatWasAppendedInOrder) {
  GrowingList<std::shared_ptr<int>> list;
  EXPECT_EQ(list.begin(), list.end());
  const auto value = std::make_shared<int>(7);
  list.push_back(value);
  const auto first = list.begin();
  list.push_back(nullptr);
  list.push_back(value);
  EXPECT_THAT(std::vector(list.begin(), list.end()), ElementsAre(value, nullptr, value));
  EXPECT_EQ(first, list.begin()) << "what is there stays where it is";
}

TEST(GrowingList, DestroysWhatItHolds) {
  const auto value = std::make_shared<int>(7);
  {
    GrowingList<std::shared_ptr<int>> list;
    for (int i = 0; i < 3; ++i) list.push_back(value);
    EXPECT_EQ(value.use_count(), 4);
  }
  EXPECT_EQ(value.use_count(), 1);
}

TEST(GrowingList, ReadersSeeABeginningOfIt) {
  constexpr int kCount = 20'000;
  GrowingList<int> list;
  std::vector<std::jthread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      for (int seen = 0; seen < kCount;) {
        int expected = 0;
        for (const int value : list) ASSERT_EQ(value, expected++);
        ASSERT_GE(expected, seen);
        seen = expected;
      }
    });
  }
  for (int i = 0; i < kCount; ++i) list.push_back(i);
}

}  // namespace
}  // namespace tileops
