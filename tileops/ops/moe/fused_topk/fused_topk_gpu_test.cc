// SPDX-License-Identifier: Apache-2.0
// The router on a Hopper GPU, beside the reference; skips where there is none.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tests/support/gpu.h"
#include "tileops/core/error_testing.h"
#include "tileops/ops/moe/fused_topk/fused_topk_op.h"

namespace tileops {
namespace {

using testing::elements;
using testing::random_tensor;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct FusedTopKGpu : testing::HopperTest {};

/// Ids and counts equal, weights close, NaN where the reference has NaN.
void compare(const std::vector<Tensor>&, const std::vector<Tensor>& got, const Results& want) {
  EXPECT_EQ(elements(got[1]), elements(want[1]));
  if (want[2].defined()) {
    EXPECT_EQ(elements(got[2]), elements(want[2]));
  }
  const std::vector<double> weights = elements(got[0]), wanted = elements(want[0]);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(wanted[i])) {
      EXPECT_TRUE(std::isnan(weights[i])) << "weight " << i;
    } else {
      EXPECT_NEAR(weights[i], wanted[i], 3e-6 * std::abs(wanted[i]) + 1e-37) << "weight " << i;
    }
  }
}

void check(const Routing& routing, const Tensor& gating, const Tensor& bias = {}) {
  Params params = routing.to_params();
  params.set("count_tokens", true);
  testing::beside_reference<FusedTopKFwdOp>(params, {gating, bias}, {0, 1, 2}, compare);
}

TEST_F(FusedTopKGpu, SmallWorkloadsAgreeWithTheReference) {
  testing::small_workloads_beside_reference<FusedTopKFwdOp>({0, 1, 2}, compare);
}

TEST_F(FusedTopKGpu, AGridOfExpertsAndTopKAgreesWithTheReference) {
  uint64_t seed = 0;
  for (const int64_t num_experts : {1, 2, 31, 32, 33, 64, 65, 128, 129, 256, 384, 1023, 2048}) {
    for (const int64_t top_k : {1, 2, 4, 8, 33, 64, 100}) {
      if (top_k > num_experts) continue;
      const DType dtype = std::array{DType::kF32, DType::kBF16, DType::kF16}[++seed % 3];
      const bool sigmoid = seed % 2 == 0;
      const Tensor bias =
          seed % 4 == 0 ? random_tensor({num_experts}, DType::kF32, seed + 1000, .1) : Tensor();
      SCOPED_TRACE("E " + std::to_string(num_experts) + " K " + std::to_string(top_k));
      check({.top_k = top_k,
             .scoring_func = sigmoid ? ScoringFunc::kSigmoid : ScoringFunc::kSoftmax,
             .renormalize = seed % 5 < 3,
             .routed_scaling_factor = 1.5},
            random_tensor({9, num_experts}, dtype, seed, 2.0), bias);
    }
  }
}

TEST_F(FusedTopKGpu, GroupsAgreeWithTheReference) {
  const int64_t groups[][4] = {{256, 8, 4, 8}, {64, 64, 9, 5}, {48, 6, 2, 6}, {2048, 512, 40, 64}};
  for (const auto& [num_experts, num_groups, topk_group, top_k] : groups) {
    for (const bool has_bias : {false, true}) {
      const Tensor bias = has_bias ? random_tensor({num_experts}, DType::kF32, 5, 0.2) : Tensor();
      check({.top_k = top_k,
             .scoring_func = ScoringFunc::kSigmoid,
             .renormalize = true,
             .num_expert_group = num_groups,
             .topk_group = topk_group,
             .routed_scaling_factor = 2.5},
            random_tensor({65, num_experts}, DType::kF32, 6, 2.0), bias);
    }
  }
}

TEST_F(FusedTopKGpu, TiesInfinitiesAndNaNsAreOrderedAsTheReferenceOrdersThem) {
  const std::vector<double> rows[] = {{0, -0.0, 0, 0, 0, 0},
                                      {kNaN, 1, kNaN, 3, kNaN, 2},
                                      {kNaN, kNaN, kNaN, kNaN, kNaN, kNaN},
                                      {-kInf, -kInf, -kInf, -kInf, -kInf, kNaN},
                                      {kInf, kInf, 1, 2, kInf, -kInf},
                                      {-200, -300, -400, -100, -150, -120}};
  const Tensor bias =
      Tensor::from_values({6}, DType::kF32, std::vector<double>{0, 0, .5, 0, kNaN, 0});
  for (const std::vector<double>& row : rows) {
    const Tensor gating = Tensor::from_values({1, 6}, DType::kF32, row);
    for (const ScoringFunc func : {ScoringFunc::kSoftmax, ScoringFunc::kSigmoid}) {
      for (const bool renormalize : {false, true}) {
        const Routing routing{.top_k = 4, .scoring_func = func, .renormalize = renormalize};
        check(routing, gating);
        if (func == ScoringFunc::kSoftmax) continue;
        check(routing, gating, bias);
        Routing grouped = routing;
        grouped.num_expert_group = 3;
        grouped.topk_group = 2;
        check(grouped, gating, bias);
      }
    }
  }
}

/// Scores closer than float32 tells apart, at every place of the ranking: exact ones must choose.
TEST_F(FusedTopKGpu, NearTiesWithABiasChooseAsExactScoresDo) {
  for (const int64_t num_experts : {8, 64, 384}) {
    for (const double gap : {1e-9, 3e-8, 1e-7, 6e-7, 2e-6}) {
      std::mt19937_64 engine(static_cast<uint64_t>(num_experts));
      std::uniform_real_distribution<double> any(-3, 3);
      std::uniform_int_distribution<int> few(0, 3);
      std::vector<double> logits, bias;
      for (int64_t i = 0; i < 33 * num_experts; ++i) {
        logits.push_back(few(engine) + gap * any(engine));  // of float32, as the bias
      }
      for (int64_t e = 0; e < num_experts; ++e) bias.push_back(gap * few(engine));
      const Tensor gating = Tensor::from_values({33, num_experts}, DType::kF32, logits);
      const Tensor bias_tensor = Tensor::from_values({num_experts}, DType::kF32, bias);
      SCOPED_TRACE("E " + std::to_string(num_experts) + " gap " + std::to_string(gap));
      Routing routing{.top_k = 4, .scoring_func = ScoringFunc::kSigmoid, .renormalize = true};
      check(routing, gating, bias_tensor);
      routing.num_expert_group = 4;
      routing.topk_group = 2;
      check(routing, gating, bias_tensor);
    }
  }
}

/// As many tokens as reach both kinds of scores in one launch.
TEST_F(FusedTopKGpu, ManyTokensWithABiasChooseAsTheReference) {
  const Tensor bias = random_tensor({384}, DType::kF32, 3, .1);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check({.top_k = 8, .scoring_func = ScoringFunc::kSigmoid, .renormalize = true},
          random_tensor({2000, 384}, dtype, 4, 2.0), bias);
  }
}

TEST_F(FusedTopKGpu, StridedLogitsAndBiasAreRead) {
  const Tensor gating = random_tensor({40, 33}, DType::kBF16, 1).transpose(0, 1);
  const Tensor bias = random_tensor({40, 3}, DType::kF32, 2).select(1, 1);
  const Routing routing{.top_k = 3, .scoring_func = ScoringFunc::kSigmoid};
  check(routing, gating, bias);
}

TEST(FusedTopKSm90, MoreExpertsThanRegistersHoldAreRefusedByName) {
  const fused_topk::Call call{.device = testing::kGpu, .num_tokens = 1, .num_experts = 2049};
  EXPECT_EQ(fused_topk::sm90_warp_per_token().refusal(call), "needs E <= 2048, found 2049");
}

}  // namespace
}  // namespace tileops
