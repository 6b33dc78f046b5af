// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/against_reference.h"
#include "tests/support/moe_definition.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::elements;
using testing::int_tensor;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;

testing::Experts random_experts(int64_t num_experts, int64_t hidden, int64_t inter, DType dtype,
                                uint64_t seed) {
  return {random_tensor({num_experts, 2 * inter, hidden}, dtype, seed, 1 / std::sqrt(hidden)),
          random_tensor({num_experts, hidden, inter}, dtype, seed + 1, 1 / std::sqrt(inter))};
}

Tensor ones(const Shape& shape) {
  return Tensor::from_values(shape, DType::kF32,
                             std::vector<double>(static_cast<size_t>(num_elements(shape)), 1.0));
}

TEST(IndexedExpertMLP, EveryImplementationAgreesWithTheReferenceOnEverySmallWorkload) {
  testing::against_reference<IndexedExpertMLPFwdOp>(testing::all_outputs_within());
}

TEST(IndexedExpertMLP, EveryRowCountAndOddSizesAgreeWithTheDefinition) {
  uint64_t seed = 0;
  for (int64_t num_tokens : {0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257}) {
    const int64_t num_experts = 1 + static_cast<int64_t>(seed % 5),
                  top_k = 1 + static_cast<int64_t>(seed % 3);
    const int64_t hidden = 17 + static_cast<int64_t>(seed % 7),
                  inter = 1 + static_cast<int64_t>(seed % 33);
    const DType dtype = seed % 2 == 0 ? DType::kBF16 : DType::kF16;
    const testing::Experts experts = random_experts(num_experts, hidden, inter, dtype, ++seed);
    const Tensor x = random_tensor({num_tokens, hidden}, dtype, seed + 100);
    const Tensor weights = random_tensor({num_tokens, top_k}, DType::kF32, seed + 200);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < num_tokens * top_k; ++i) ids.push_back(i * 5 % (num_experts + 2) - 1);
    const Tensor id_tensor = int_tensor({num_tokens, top_k}, ids);
    const Tensor out =
        IndexedExpertMLPFwdOp(1.5)(x, weights, id_tensor, experts.w_gate_up, experts.w_down);
    const auto want = testing::experts_definition(experts, x, weights, id_tensor, 1.5);
    EXPECT_LE(relative_error(elements(out), want), tolerance(dtype)) << "T " << num_tokens;
  }
}

TEST(IndexedExpertMLP, AllRoutesDroppedGivesZeroAndDuplicatesEachCount) {
  const testing::Experts experts = random_experts(3, 16, 8, DType::kF16, 1);
  const Tensor x = random_tensor({2, 16}, DType::kF16, 2);
  for (const char* key : {"reference", "cpu_segments"}) {
    const IndexedExpertMLPFwdOp op(1.0, GatedActivation::silu_and_mul, false,
                                   {.implementation = key});
    const Tensor ids = int_tensor({2, 2}, {-1, 3, 1, 1});
    const Tensor twice = op(x, ones({2, 2}), ids, experts.w_gate_up, experts.w_down);
    const Tensor once =
        op(x, ones({2, 1}), int_tensor({2, 1}, {2147483647, 1}), experts.w_gate_up, experts.w_down);
    for (int64_t h = 0; h < 16; ++h) {
      EXPECT_EQ(twice.at({0, h}), 0) << key;
      EXPECT_NEAR(twice.at({1, h}), 2 * once.at({1, h}), 2e-3 * std::abs(twice.at({1, h})) + 1e-6)
          << key;
    }
  }
}

TEST(IndexedExpertMLP, StridesOfEveryTensorAreHonoured) {
  const Tensor x = random_tensor({20, 5}, DType::kBF16, 3).transpose(0, 1).narrow(1, 1, 16);
  const testing::Experts plain = random_experts(3, 16, 8, DType::kBF16, 4);
  testing::Experts experts = plain;
  experts.w_gate_up = random_tensor({16, 3, 16}, DType::kBF16, 5, 0.25).transpose(0, 1);
  experts.w_down = random_tensor({3, 8, 16}, DType::kBF16, 6, 0.3).transpose(1, 2);
  const Tensor weights = random_tensor({2, 5}, DType::kF32, 7).transpose(0, 1);
  const Tensor ids = int_tensor({2, 5}, {0, 1, 2, 0, 1, 2, 1, 0, 2, 2}).transpose(0, 1);
  const auto want = testing::experts_definition(experts, x, weights, ids, 1);
  for (const char* key : {"reference", "cpu_segments"}) {
    const Tensor out = testing::poisoned({16, 5}, DType::kBF16).transpose(0, 1);
    IndexedExpertMLPFwdOp(1.0, GatedActivation::silu_and_mul, false, {.implementation = key})(
        x, weights, ids, experts.w_gate_up, experts.w_down, {.out = out});
    EXPECT_LE(relative_error(elements(out), want), tolerance(DType::kBF16)) << key;
  }
}

TEST(IndexedExpertMLP, BatchInvarianceKeepsATokensBits) {
  const testing::Experts experts = random_experts(4, 64, 40, DType::kBF16, 8);
  const Tensor x = random_tensor({65, 64}, DType::kBF16, 9),
               weights = random_tensor({65, 2}, DType::kF32, 10);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 130; ++i) ids.push_back(i * 3 % 4);
  const Tensor id_tensor = int_tensor({65, 2}, ids);
  const IndexedExpertMLPFwdOp op(1.0, GatedActivation::silu_and_mul, true);
  const auto run = [&](int64_t begin, int64_t count) {
    return op(x.narrow(0, begin, count), weights.narrow(0, begin, count),
              id_tensor.narrow(0, begin, count), experts.w_gate_up, experts.w_down);
  };
  const Tensor all = run(0, 65);
  for (int64_t t : {0, 1, 40, 64}) EXPECT_TRUE(bit_equal(run(t, 1), all.narrow(0, t, 1))) << t;
  for (int64_t count = 1; count <= 65; ++count)
    EXPECT_TRUE(bit_equal(run(0, count), all.narrow(0, 0, count))) << count;
}

TEST(IndexedExpertMLP, AForcedInnerLoopIsHonouredOrRefused) {
  const testing::Experts experts = random_experts(2, 16, 8, DType::kBF16, 11);
  const Tensor x = random_tensor({3, 16}, DType::kBF16, 12);
  const auto call = [&](const char* loop) {
    const IndexedExpertMLPFwdOp op(1.0, GatedActivation::silu_and_mul, false,
                                   {.kernel_config = {{"inner_loop", loop}}});
    op(x, ones({3, 1}), int_tensor({3, 1}, {0, 1, 1}), experts.w_gate_up, experts.w_down);
    return op.kernel_config().at(0).values;
  };
  EXPECT_EQ(call("fma"), (Params{{"inner_loop", "fma"}}));
  EXPECT_ANY_THROW(call("wishful"));
}

}  // namespace
}  // namespace tileops
