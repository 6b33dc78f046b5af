// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/post_permute/post_permute_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/against_reference.h"

namespace tileops {
namespace {

using testing::elements;
using ::testing::ElementsAre;
using testing::int_tensor;
using testing::poisoned;
using testing::random_tensor;

const auto kTight = MGroupedLayout::contiguous();

TEST(PostPermute, EveryImplementationAgreesWithTheReferenceOnEverySmallWorkload) {
  testing::against_reference<MoEPostPermuteFwdOp>(testing::all_outputs_within());
}

TEST(PostPermute, DroppedRoutesAddNothingAndPaddingNeverLeaks) {
  const Tensor rows = poisoned({4, 2}, DType::kBF16);
  rows.data_as<uint16_t>()[2] = f32_to_bf16(3);
  rows.data_as<uint16_t>()[3] = f32_to_bf16(5);
  const Tensor weights =
      Tensor::from_values({3, 2}, DType::kF32, std::vector<double>{2, 7, 1, 1, 1, 1});
  const Tensor inverse = int_tensor({6}, {1, -1, 4, -1, 2147483647, -2147483648});
  for (const char* key : {"reference", "cpu_weighted_sum"}) {
    const MoEPostPermuteFwdOp op(kTight, RoutingEpilogue{0.5}, std::nullopt,
                                 {.implementation = key});
    EXPECT_THAT(elements(op(rows, weights, inverse)), ElementsAre(3, 5, 0, 0, 0, 0)) << key;
  }
}

TEST(PostPermute, SumsRunOverKInRisingOrderInFloat32) {
  // 2^24 + 1 − 2^24 is 0 in this order and 1 in another.
  const Tensor rows =
      Tensor::from_values({3, 1}, DType::kF32, std::vector<double>{16777216, 1, -16777216});
  const Tensor weights = Tensor::from_values({1, 3}, DType::kF32, std::vector<double>{1, 1, 1});
  EXPECT_THAT(elements(MoEPostPermuteFwdOp(kTight)(rows, weights, int_tensor({3}, {0, 1, 2}))),
              ElementsAre(0));
  EXPECT_THAT(elements(MoEPostPermuteFwdOp(kTight)(rows, weights, int_tensor({3}, {0, 2, 1}))),
              ElementsAre(1));
}

TEST(PostPermute, StridesOfEveryTensorAreHonoured) {
  const Tensor rows = random_tensor({40, 6}, DType::kBF16, 1).transpose(0, 1).narrow(1, 3, 33);
  const Tensor weights = random_tensor({2, 3}, DType::kF32, 2).transpose(0, 1);
  const Tensor inverse = int_tensor({6, 2}, {5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0}).select(1, 0);
  const Tensor want =
      MoEPostPermuteFwdOp(kTight)(rows.contiguous(), weights.contiguous(), inverse.contiguous());
  for (const char* key : {"reference", "cpu_weighted_sum"}) {
    const Tensor out = poisoned({33, 3}, DType::kBF16).transpose(0, 1);
    MoEPostPermuteFwdOp(kTight, std::nullopt, std::nullopt, {.implementation = key})(rows, weights,
                                                                                     inverse, out);
    EXPECT_LE(testing::relative_error(out, want), testing::tolerance(DType::kBF16)) << key;
  }
}

}  // namespace
}  // namespace tileops
