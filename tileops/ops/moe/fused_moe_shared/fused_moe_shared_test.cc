// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_moe_shared/fused_moe_shared_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/against_reference.h"
#include "tileops/core/error.h"
#include "tileops/op/trace.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::elements;
using ::testing::ElementsAre;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;

const Routing kRouting{.top_k = 2,
                       .scoring_func = ScoringFunc::kSigmoid,
                       .renormalize = true,
                       .routed_scaling_factor = 2.5};

struct Layer {
  Tensor x = random_tensor({9, 16}, DType::kBF16, 1);
  Tensor gating = random_tensor({9, 5}, DType::kF32, 2);
  Tensor w_gate_up = random_tensor({5, 16, 16}, DType::kBF16, 3, 0.25);
  Tensor w_down = random_tensor({5, 16, 8}, DType::kBF16, 4, 0.3);
  Tensor shared_w_gate_up = random_tensor({24, 16}, DType::kBF16, 5, 0.25);
  Tensor shared_w_down = random_tensor({16, 12}, DType::kBF16, 6, 0.3);
};

FusedMoESharedExpertFwdOp::Output run(const FusedMoESharedExpertFwdOp& op, const Layer& layer) {
  return op(layer.x, layer.gating, layer.w_gate_up, layer.w_down,
            {.shared_w_gate_up = layer.shared_w_gate_up, .shared_w_down = layer.shared_w_down});
}

TEST(FusedMoESharedExpert, TheStagesAgreeWithTheReferenceOnEverySmallWorkload) {
  testing::against_reference<FusedMoESharedExpertFwdOp>(testing::all_outputs_within());
}

TEST(FusedMoESharedExpert, BothPartsAreThoseOfTheirOwnOps) {
  const Layer layer;
  const auto got = run(FusedMoESharedExpertFwdOp(kRouting), layer);
  EXPECT_TRUE(bit_equal(
      got.routed_output,
      FusedMoEFwdOp(kRouting)(layer.x, layer.gating, layer.w_gate_up, layer.w_down).output));
  EXPECT_TRUE(bit_equal(got.shared_output, SharedExpertMLPFwdOp()(layer.x, layer.shared_w_gate_up,
                                                                  layer.shared_w_down)));
}

TEST(FusedMoESharedExpert, WithoutSharedWeightsThereIsNoSharedOutput) {
  Layer layer;
  const FusedMoESharedExpertFwdOp op(kRouting);
  const Tensor routed = run(op, layer).routed_output;
  layer.shared_w_gate_up = layer.shared_w_down = Tensor();
  const auto got = run(op, layer);
  EXPECT_FALSE(got.shared_output.defined());
  EXPECT_TRUE(bit_equal(got.routed_output, routed));
  EXPECT_TRUE(op.last_call()->stages("shared_expert").empty());
  layer.shared_w_down = random_tensor({16, 12}, DType::kBF16, 6);
  EXPECT_THROW(run(op, layer), Error);
}

TEST(FusedMoESharedExpert, ShardsOfTheSharedExpertAddUpAndTheRoutedPartIsWhole) {
  const Layer layer;
  const auto whole = run(FusedMoESharedExpertFwdOp(kRouting), layer);
  std::vector<double> sum(elements(whole.shared_output).size());
  for (int64_t rank = 0; rank < 3; ++rank) {
    const auto part = run(FusedMoESharedExpertFwdOp(kRouting, {}, 3, rank), layer);
    EXPECT_TRUE(bit_equal(part.routed_output, whole.routed_output));
    const std::vector<double> values = elements(part.shared_output);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  EXPECT_LE(relative_error(sum, elements(whole.shared_output)), tolerance(DType::kBF16));
}

TEST(FusedMoESharedExpert, ATraceShowsTheLeavesAndRunsAgain) {
  const Layer layer;
  const FusedMoESharedExpertFwdOp op(kRouting, {.return_routing = true});
  const Tensor inputs[] = {
      layer.x,  layer.gating, layer.w_gate_up,        layer.w_down,       Tensor(),
      Tensor(), Tensor(),     layer.shared_w_gate_up, layer.shared_w_down};
  const Graph graph = trace(op, {inputs, {}});
  std::vector<std::string> stages;
  for (const GraphNode& node : graph.nodes()) stages.push_back(node.stage);
  EXPECT_THAT(stages,
              ElementsAre("shared_expert", "route_select", "routed_experts.indexed_small_route"));
  const auto want = run(op, layer);
  const Results got = graph.run({inputs, {}});
  EXPECT_TRUE(bit_equal(got[0], want.shared_output));
  EXPECT_TRUE(bit_equal(got[1], want.routed_output));
  EXPECT_TRUE(bit_equal(got[3], want.tokens_per_expert));
}

}  // namespace
}  // namespace tileops
