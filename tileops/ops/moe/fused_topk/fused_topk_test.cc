// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_topk/fused_topk_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/against_reference.h"
#include "tests/support/moe_definition.h"
#include "tileops/core/error_testing.h"

namespace tileops {
namespace {

using testing::elements;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::poisoned;
using testing::random_tensor;
using testing::relative_error;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor logits(const std::vector<double>& values, DType dtype = DType::kF32) {
  return Tensor::from_values({1, static_cast<int64_t>(values.size())}, dtype, values);
}

std::vector<std::string> all_keys() {
  std::vector<std::string> keys = testing::cpu_keys<FusedTopKFwdOp>();
  keys.emplace_back("reference");
  return keys;
}

/// Runs `check` on the output of every implementation.
template <class Check>
void each(const Routing& routing, const Tensor& gating, const Tensor& bias, Check&& check) {
  for (const std::string& key : all_keys()) {
    SCOPED_TRACE(key);
    check(FusedTopKFwdOp(routing, true, {.implementation = key})(gating, bias));
  }
}

TEST(FusedTopK, EveryImplementationAgreesWithTheReferenceOnEverySmallWorkload) {
  testing::against_reference<FusedTopKFwdOp>(testing::all_outputs_within(1e-6));
}

TEST(FusedTopK, AGridOfExpertsAndTopKAgreesWithTheDefinition) {
  const int64_t rows[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257};
  uint64_t seed = 0;
  for (int64_t num_experts : {1, 2, 3, 7, 8, 31, 60, 64, 128, 129, 256, 384, 1023, 2048}) {
    for (int64_t top_k : {1, 2, 3, 4, 6, 8, 9, 33, 64}) {
      if (top_k > num_experts) continue;
      const DType dtype = std::array{DType::kF32, DType::kBF16, DType::kF16}[seed % 3];
      const int64_t num_tokens = num_experts > 300 ? 3 : rows[seed % 12];
      const Tensor gating = random_tensor({num_tokens, num_experts}, dtype, ++seed, 2.0);
      const testing::Router router{
          .top_k = top_k, .sigmoid = seed % 2 == 0, .renormalize = seed % 4 < 2, .scale = 1.5};
      const Routing routing{
          .top_k = top_k,
          .scoring_func = router.sigmoid ? ScoringFunc::kSigmoid : ScoringFunc::kSoftmax,
          .renormalize = router.renormalize,
          .routed_scaling_factor = 1.5};
      const testing::Routes want = testing::route_definition(router, gating, {});
      const FusedTopKFwdOp::Output got = FusedTopKFwdOp(routing)(gating);
      EXPECT_EQ(elements(got.topk_ids), std::vector<double>(want.ids.begin(), want.ids.end()))
          << "E " << num_experts << " K " << top_k;
      EXPECT_LE(relative_error(elements(got.topk_weights), want.weights), 1e-6)
          << "E " << num_experts << " K " << top_k;
    }
  }
}

TEST(FusedTopK, GroupsWithBiasFollowTheDefinition) {
  const Tensor gating = random_tensor({129, 64}, DType::kF32, 3, 2.0);
  const Tensor bias = random_tensor({64}, DType::kF32, 4, 0.2);
  const Routing routing{.top_k = 8,
                        .scoring_func = ScoringFunc::kSigmoid,
                        .renormalize = true,
                        .num_expert_group = 8,
                        .topk_group = 3,
                        .routed_scaling_factor = 2.5};
  const testing::Routes want = testing::route_definition({8, true, true, 8, 3, 2.5}, gating, bias);
  each(routing, gating, bias, [&](const FusedTopKFwdOp::Output& got) {
    EXPECT_EQ(elements(got.topk_ids), std::vector<double>(want.ids.begin(), want.ids.end()));
    EXPECT_LE(relative_error(elements(got.topk_weights), want.weights), 1e-6);
  });
}

TEST(FusedTopK, TiesGoToTheLowerId) {
  each({.top_k = 3}, logits({1, 2, 2, 1, 2, 0}, DType::kBF16), {},
       [](const auto& got) { EXPECT_THAT(elements(got.topk_ids), ElementsAre(1, 2, 4)); });
  each({.top_k = 3}, logits({-0.0, 0.0, -0.0, 0.0}), {},
       [](const auto& got) { EXPECT_THAT(elements(got.topk_ids), ElementsAre(0, 1, 2)); });
}

TEST(FusedTopK, NaNRanksBelowEveryNumberAndIdsStayDistinctAndInRange) {
  each({.top_k = 4}, logits({kNaN, kNaN, kNaN, kNaN, kNaN}), {},
       [](const auto& got) { EXPECT_THAT(elements(got.topk_ids), ElementsAre(0, 1, 2, 3)); });
  each({.top_k = 3, .renormalize = true}, logits({kNaN, -kInf, 2, kNaN, 1}), {},
       [](const auto& got) {
         EXPECT_THAT(elements(got.topk_ids), ElementsAre(2, 4, 1));
         EXPECT_NEAR(elements(got.topk_weights)[0], 1 / (1 + std::exp(-1.0)), 1e-6);
       });
  const Tensor nan_bias =
      Tensor::from_values({4}, DType::kF32, std::vector<double>{kNaN, kNaN, kNaN, kNaN});
  each({.top_k = 2, .scoring_func = ScoringFunc::kSigmoid, .num_expert_group = 2, .topk_group = 1},
       logits({1, 2, 3, 4}), nan_bias,
       [](const auto& got) { EXPECT_THAT(elements(got.topk_ids), ElementsAre(0, 1)); });
}

TEST(FusedTopK, InfinitiesAreDefined) {
  each({.top_k = 3}, logits({kInf, 1, kInf, -kInf}), {}, [](const auto& got) {
    EXPECT_THAT(elements(got.topk_ids), ElementsAre(0, 2, 1));
    EXPECT_THAT(elements(got.topk_weights), ElementsAre(0.5, 0.5, 0));
  });
  each({.top_k = 2}, logits({-kInf, -kInf, -kInf, -kInf}), {}, [](const auto& got) {
    EXPECT_THAT(elements(got.topk_ids), ElementsAre(0, 1));
    EXPECT_THAT(elements(got.topk_weights), ElementsAre(0.25, 0.25));
  });
  each({.top_k = 2, .scoring_func = ScoringFunc::kSigmoid}, logits({-kInf, kInf}), {},
       [](const auto& got) {
         EXPECT_THAT(elements(got.topk_ids), ElementsAre(1, 0));
         EXPECT_THAT(elements(got.topk_weights), ElementsAre(1, 0));
       });
}

TEST(FusedTopK, BiasMovesIdsNeverWeights) {
  const Tensor bias = Tensor::from_values({3}, DType::kF32, std::vector<double>{0, 0, 10});
  each({.top_k = 1, .scoring_func = ScoringFunc::kSigmoid}, logits({2, 1, 0}), bias,
       [](const auto& got) {
         EXPECT_THAT(elements(got.topk_ids), ElementsAre(2));
         EXPECT_THAT(elements(got.topk_weights), ElementsAre(0.5));
       });
}

TEST(FusedTopK, MaskedGroupsNeverWinEvenWhereEveryScoreIsNegative) {
  const Tensor bias = Tensor::from_values({4}, DType::kF32, std::vector<double>{-5, -5, -7, -9});
  each({.top_k = 2, .scoring_func = ScoringFunc::kSigmoid, .num_expert_group = 2, .topk_group = 1},
       logits({0, 0, 0, 0}), bias,
       [](const auto& got) { EXPECT_THAT(elements(got.topk_ids), ElementsAre(0, 1)); });
}

TEST(FusedTopK, RenormalizedWeightsSumToOneHoweverSmallTheScores) {
  each({.top_k = 2,
        .scoring_func = ScoringFunc::kSigmoid,
        .renormalize = true,
        .routed_scaling_factor = 2},
       logits({-1000, -1001, -1002}), {}, [](const auto& got) {
         const std::vector<double> weights = elements(got.topk_weights);
         EXPECT_NEAR(weights[0] + weights[1], 2, 1e-6);
         EXPECT_NEAR(weights[1] / weights[0], std::exp(-1.0), 1e-6);
       });
}

TEST(FusedTopK, CountsAddUpAndAreZeroWithoutTokens) {
  const Tensor gating = random_tensor({257, 31}, DType::kF32, 5);
  each({.top_k = 4}, gating, {}, [](const auto& got) {
    std::vector<double> counts(31);
    for (double id : elements(got.topk_ids)) counts[static_cast<size_t>(id)] += 1;
    EXPECT_EQ(elements(got.tokens_per_expert), counts);
  });
  each({.top_k = 2}, random_tensor({0, 3}, DType::kF32, 6), {}, [](const auto& got) {
    EXPECT_EQ(got.topk_ids.shape(), (Shape{0, 2}));
    EXPECT_THAT(elements(got.tokens_per_expert), ElementsAre(0, 0, 0));
  });
}

TEST(FusedTopK, StridesAreHonoured) {
  const Tensor wide = random_tensor({40, 33}, DType::kBF16, 7);
  const Tensor gating = wide.transpose(0, 1).narrow(1, 5, 24);
  const Tensor bias = random_tensor({24, 3}, DType::kF32, 8).select(1, 1);
  const Routing routing{.top_k = 3, .scoring_func = ScoringFunc::kSigmoid};
  const testing::Routes want = testing::route_definition({3, true}, gating, bias);
  each(routing, gating, bias, [&](const auto& got) {
    EXPECT_EQ(elements(got.topk_ids), std::vector<double>(want.ids.begin(), want.ids.end()));
  });
}

TEST(FusedTopK, ATokenIsRoutedAloneAsInABatch) {
  const Tensor gating = random_tensor({33, 60}, DType::kBF16, 9);
  const FusedTopKFwdOp op({.top_k = 4, .renormalize = true});
  const FusedTopKFwdOp::Output batch = op(gating);
  for (int64_t t : {0, 17, 32}) {
    const FusedTopKFwdOp::Output alone = op(gating.narrow(0, t, 1));
    EXPECT_TRUE(testing::bit_equal(alone.topk_weights, batch.topk_weights.narrow(0, t, 1)));
    EXPECT_TRUE(testing::bit_equal(alone.topk_ids, batch.topk_ids.narrow(0, t, 1)));
  }
}

TEST(FusedTopK, ErrorsNameTheRule) {
  const Tensor gating = random_tensor({2, 6}, DType::kF32, 1),
               bias = random_tensor({6}, DType::kF32, 2);
  EXPECT_THAT(error_of([&] { FusedTopKFwdOp({.top_k = 7})(gating); }), HasSubstr("top_k"));
  EXPECT_THAT(error_of([&] { FusedTopKFwdOp({.top_k = 0}); }), HasSubstr("top_k"));
  EXPECT_THAT(error_of([&] { FusedTopKFwdOp({.top_k = 1})(gating, bias); }),
              HasSubstr("correction_bias"));
  EXPECT_THAT(error_of([&] { FusedTopKFwdOp({.top_k = 1, .num_expert_group = 4})(gating); }),
              HasSubstr("num_expert_group"));
  EXPECT_THAT(error_of([&] {
                FusedTopKFwdOp({.top_k = 4, .num_expert_group = 2, .topk_group = 1})(gating);
              }),
              HasSubstr("topk_group"));
  EXPECT_THAT(error_of([&] { FusedTopKFwdOp({.top_k = 1, .routed_scaling_factor = kNaN}); }),
              HasSubstr("routed_scaling_factor"));
  const OpOptions forced{.kernel_config = {{"tile", int64_t{1}}}};
  EXPECT_THAT(error_of([&] { FusedTopKFwdOp({.top_k = 1}, false, forced)(gating); }),
              HasSubstr("has nothing to configure, got tile=1"));
}

}  // namespace
}  // namespace tileops
