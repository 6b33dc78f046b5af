// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "tileops/core/error_testing.h"

namespace tileops {
namespace {

TEST(Dims, HoldUpToEight) {
  Dims dims;
  EXPECT_TRUE(dims.empty());
  for (int i = 0; i < kMaxRank; ++i) dims.push_back(i);
  EXPECT_EQ(to_string(dims), "[0, 1, 2, 3, 4, 5, 6, 7]");
  EXPECT_EQ(error_of([&] { dims.push_back(8); }),
            "ValueError: a tensor has at most 8 dimensions, got 9");
  EXPECT_EQ(dims.size(), kMaxRank);
  const std::vector<int64_t> nine(9, 1);
  EXPECT_EQ(error_of([&] { Dims(std::span<const int64_t>(nine)); }),
            "ValueError: a tensor has at most 8 dimensions, got 9");
}

TEST(Dims, AreEqualByValuesHeld) {
  EXPECT_EQ(Dims({2, 3}), Dims({2, 3}));
  EXPECT_NE(Dims({2}), Dims({2, 0}));
  EXPECT_EQ(to_string(Dims()), "[]");
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({0, 5}), 0);
  EXPECT_EQ(num_elements({3, 1, 7}), 21);
  EXPECT_EQ(num_elements({INT64_MAX}), INT64_MAX);
}

TEST(Shape, RefusesNegativeSizesAndOverflow) {
  EXPECT_EQ(error_of([] {
              num_elements({2, -1});
            }),
            "ValueError: sizes must be at least 0, got shape [2, -1]");
  const std::string text =
      "ValueError: shape [4294967296, 4294967296] has more elements than int64 can count";
  EXPECT_EQ(error_of([] { num_elements({int64_t{1} << 32, int64_t{1} << 32}); }), text);
  EXPECT_EQ(error_of([] { contiguous_strides({int64_t{1} << 32, int64_t{1} << 32}); }), text);
  EXPECT_NE(error_of([] { num_elements({0, INT64_MAX, 2}); }), "no error");
}

TEST(Shape, ContiguousStridesCountAZeroSizeAsOne) {
  EXPECT_EQ(contiguous_strides({2, 3, 5}), Strides({15, 5, 1}));
  EXPECT_EQ(contiguous_strides({2, 0, 5}), Strides({5, 5, 1}));
  EXPECT_EQ(contiguous_strides({}), Strides());
}

TEST(Shape, ExtentReachesPastTheLastElement) {
  EXPECT_EQ(extent_elements({}, {}), 1);
  EXPECT_EQ(extent_elements({2, 3}, {10, 2}), 15);
  EXPECT_EQ(extent_elements({4, 3}, {0, 1}), 3);
  EXPECT_EQ(extent_elements({4, 0}, {INT64_MAX, 1}), 0);
  EXPECT_EQ(error_of([] {
              extent_elements({2, 3}, {1});
            }),
            "ValueError: shape [2, 3] needs 2 strides, got [1]");
  EXPECT_EQ(error_of([] { extent_elements({2}, {-1}); }),
            "ValueError: strides must be at least 0, got [-1]");
  EXPECT_EQ(error_of([] {
              extent_elements({3, 2}, {INT64_MAX / 2, 2});
            }),
            "ValueError: shape [3, 2] with strides [4611686018427387903, 2] reaches further than "
            "int64 can count");
}

}  // namespace
}  // namespace tileops
