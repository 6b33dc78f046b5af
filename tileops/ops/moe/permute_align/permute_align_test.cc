// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/permute_align/permute_align_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/against_reference.h"

namespace tileops {
namespace {

using testing::elements;
using ::testing::ElementsAre;
using testing::int_tensor;

TEST(PermuteAlign, EveryImplementationAgreesWithTheReferenceOnEverySmallWorkload) {
  testing::against_reference<MoEPermuteAlignFwdOp>(testing::all_outputs_within());
}

TEST(PermuteAlign, ByHand) {
  // Routes 0..5; expert 1 gets 0, 3, 4; expert 0 gets 2; −1 and 2 are no experts.
  const Tensor ids = int_tensor({3, 2}, {1, -1, 0, 1, 1, 2});
  for (const char* key : {"reference", "cpu_counting_sort"}) {
    const MoEPermuteAlignFwdOp::Output out =
        MoEPermuteAlignFwdOp(2, 2, {.implementation = key})(ids);
    EXPECT_THAT(elements(out.sorted_route_ids), ElementsAre(2, 6, 0, 3, 4, 6, 6, 6, 6)) << key;
    EXPECT_THAT(elements(out.block_expert_ids), ElementsAre(0, 1, 1, 2, 2)) << key;
    EXPECT_THAT(elements(out.num_padded_rows), ElementsAre(6)) << key;
  }
}

TEST(PermuteAlign, AbnormalIdsAreDroppedAndDuplicatesEachCount) {
  const Tensor ids = int_tensor({2, 3}, {2147483647, -2147483648, 3, 3, 3, 4});
  for (const char* key : {"reference", "cpu_counting_sort"}) {
    const MoEPermuteAlignFwdOp::Output out =
        MoEPermuteAlignFwdOp(4, 1, {.implementation = key})(ids);
    EXPECT_THAT(elements(out.sorted_route_ids), ElementsAre(2, 3, 4, 6, 6, 6)) << key;
    EXPECT_THAT(elements(out.num_padded_rows), ElementsAre(3)) << key;
  }
}

TEST(PermuteAlign, EveryShapeAgreesWithTheReference) {
  uint64_t seed = 0;
  for (int64_t num_tokens : {0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257}) {
    for (int64_t num_experts : {1, 7, 2048}) {
      for (int64_t block_size : {1, 16, 65}) {
        const int64_t top_k = 1 + static_cast<int64_t>(++seed % 8);
        std::vector<int64_t> values;
        for (int64_t i = 0; i < num_tokens * top_k; ++i) {
          values.push_back((i * 7919 + static_cast<int64_t>(seed)) % (num_experts + 2) - 1);
        }
        const Tensor ids = int_tensor({num_tokens, top_k}, values);
        const auto want =
            MoEPermuteAlignFwdOp(num_experts, block_size, {.implementation = "reference"})(ids);
        const auto got = MoEPermuteAlignFwdOp(num_experts, block_size)(ids);
        EXPECT_TRUE(testing::bit_equal(got.sorted_route_ids, want.sorted_route_ids));
        EXPECT_TRUE(testing::bit_equal(got.block_expert_ids, want.block_expert_ids));
        EXPECT_TRUE(testing::bit_equal(got.num_padded_rows, want.num_padded_rows));
      }
    }
  }
}

}  // namespace
}  // namespace tileops
