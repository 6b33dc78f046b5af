// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/inline_vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tileops {
namespace {

using ::testing::ElementsAre;
using Counted = std::shared_ptr<int>;

TEST(InlineVector, HoldsWhatWasAppended) {
  InlineVector<std::string, 3> texts;
  EXPECT_EQ(texts.size(), 0U);
  EXPECT_EQ(texts.emplace_back("one"), "one");
  texts.emplace_back(40, 'x');
  EXPECT_FALSE(texts.full());
  texts.emplace_back("three");
  EXPECT_TRUE(texts.full());
  EXPECT_THAT(texts, ElementsAre("one", std::string(40, 'x'), "three"));
  texts.assign(2, "same");
  EXPECT_THAT(texts, ElementsAre("same", "same"));
}

TEST(InlineVector, CopiesMovesAndDestroysWhatIsThereAlone) {
  const Counted value = std::make_shared<int>(7);
  {
    InlineVector<Counted, 8> first;
    first.assign(3, value);
    EXPECT_EQ(value.use_count(), 4);
    InlineVector<Counted, 8> copy = first;
    EXPECT_EQ(value.use_count(), 7);
    const InlineVector<Counted, 8> moved = std::move(copy);
    EXPECT_EQ(value.use_count(), 7);
    EXPECT_EQ(copy.size(), 0U);  // NOLINT: a moved one is empty
    copy.emplace_back(value);
    copy = moved;
    EXPECT_EQ(copy.size(), 3U);
    copy = *&copy;
    EXPECT_EQ(copy.size(), 3U);
    copy = InlineVector<Counted, 8>();
    EXPECT_EQ(value.use_count(), 7);
    first.clear();
    EXPECT_EQ(value.use_count(), 4);
  }
  EXPECT_EQ(value.use_count(), 1);
}

}  // namespace
}  // namespace tileops
