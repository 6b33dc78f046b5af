// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/against_reference.h"
#include "tests/support/moe_definition.h"
#include "tileops/core/error_testing.h"
#include "tileops/op/trace.h"

namespace tileops {
namespace {

using ::testing::AllOf;
using testing::bit_equal;
using ::testing::Contains;
using testing::elements;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::int_tensor;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;

struct Layer {
  testing::Experts experts;
  Tensor x, gating, bias;
};

Layer random_layer(int64_t num_tokens, int64_t num_experts, int64_t hidden, int64_t inter,
                   DType dtype, uint64_t seed) {
  return {{random_tensor({num_experts, 2 * inter, hidden}, dtype, seed, 1 / std::sqrt(hidden)),
           random_tensor({num_experts, hidden, inter}, dtype, seed + 1, 1 / std::sqrt(inter))},
          random_tensor({num_tokens, hidden}, dtype, seed + 2),
          random_tensor({num_tokens, num_experts}, DType::kF32, seed + 3, 2.0)};
}

FusedMoEFwdOp::Output run(const FusedMoEFwdOp& op, const Layer& layer) {
  return op(layer.x, layer.gating, layer.experts.w_gate_up, layer.experts.w_down,
            {.b_gate_up = layer.experts.b_gate_up,
             .b_down = layer.experts.b_down,
             .correction_bias = layer.bias});
}

std::vector<double> definition(const testing::Router& router, const Layer& layer) {
  const testing::Routes routes = testing::route_definition(router, layer.gating, layer.bias);
  const Shape shape{layer.x.size(0), router.top_k};
  return testing::experts_definition(layer.experts, layer.x,
                                     Tensor::from_values(shape, DType::kF64, routes.weights),
                                     int_tensor(shape, routes.ids), 1);
}

TEST(FusedMoE, TheStagesAgreeWithTheReferenceOnEverySmallWorkload) {
  testing::against_reference<FusedMoEFwdOp>(testing::all_outputs_within());
}

TEST(FusedMoE, AGridOfLayersAgreesWithTheDefinition) {
  const int64_t rows[] = {0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257};
  uint64_t seed = 0;
  for (int64_t num_experts : {1, 2, 3, 8, 32, 60, 128, 257}) {
    for (int64_t top_k : {1, 2, 4, 8}) {
      if (top_k > num_experts) continue;
      const DType dtype = ++seed % 2 == 0 ? DType::kBF16 : DType::kF16;
      Layer layer = random_layer(rows[seed % 13], num_experts, 17 + static_cast<int64_t>(seed % 9),
                                 11, dtype, seed * 10);
      testing::Router router{
          .top_k = top_k, .sigmoid = seed % 3 != 0, .renormalize = seed % 4 < 2, .scale = 2.5};
      Routing routing{
          .top_k = top_k,
          .scoring_func = router.sigmoid ? ScoringFunc::kSigmoid : ScoringFunc::kSoftmax,
          .renormalize = router.renormalize,
          .routed_scaling_factor = 2.5};
      if (router.sigmoid) layer.bias = random_tensor({num_experts}, DType::kF32, seed + 7, 0.3);
      if (num_experts % 4 == 0 && top_k <= num_experts / 2) {
        router.groups = routing.num_expert_group = 4;
        router.topk_group = routing.topk_group = 2;
      }
      const FusedMoEFwdOp::Output got = run(FusedMoEFwdOp(routing), layer);
      EXPECT_LE(relative_error(elements(got.output), definition(router, layer)), tolerance(dtype))
          << "E " << num_experts << " K " << top_k << " T " << layer.x.size(0);
    }
  }
}

TEST(FusedMoE, GptOssLayerAgreesWithTheDefinition) {
  Layer layer = random_layer(33, 8, 24, 20, DType::kBF16, 5);
  layer.experts.act = testing::Act::kSwigluOai;
  layer.experts.b_gate_up = random_tensor({8, 40}, DType::kBF16, 6);
  layer.experts.b_down = random_tensor({8, 24}, DType::kBF16, 7);
  const FusedMoEFwdOp op({.top_k = 4, .renormalize = true},
                         {.activation = GatedActivation::swigluoai()});
  EXPECT_LE(relative_error(elements(run(op, layer).output),
                           definition({.top_k = 4, .renormalize = true}, layer)),
            tolerance(DType::kBF16));
}

TEST(FusedMoE, RoutingIsReturnedWhereItIsAskedFor) {
  const Layer layer = random_layer(31, 6, 16, 8, DType::kBF16, 8);
  const FusedMoEFwdOp::Output plain = run(FusedMoEFwdOp({.top_k = 2}), layer);
  EXPECT_FALSE(plain.topk_ids.defined());
  EXPECT_FALSE(plain.tokens_per_expert.defined());
  const FusedMoEFwdOp::Output full =
      run(FusedMoEFwdOp({.top_k = 2}, {.return_routing = true}), layer);
  EXPECT_TRUE(bit_equal(full.output, plain.output));
  const FusedTopKFwdOp::Output routes = FusedTopKFwdOp({.top_k = 2}, true)(layer.gating);
  EXPECT_TRUE(bit_equal(full.topk_ids, routes.topk_ids));
  EXPECT_TRUE(bit_equal(full.tokens_per_expert, routes.tokens_per_expert));
}

TEST(FusedMoE, InjectedExpertsServeAndThoseThatContradictAreRefused) {
  const Layer layer = random_layer(5, 4, 16, 8, DType::kBF16, 9);
  const auto experts =
      std::make_shared<FusedMoEExpertsFwdOp>(ExpertsSettings{.small_route = SmallRoute::kNever});
  const FusedMoEFwdOp op({.top_k = 2}, {.experts = experts});
  EXPECT_LE(relative_error(elements(run(op, layer).output), definition({.top_k = 2}, layer)),
            tolerance(DType::kBF16));
  EXPECT_EQ(experts->last_call()->stages("expert_mlp").size(), 1u);
  EXPECT_THAT(error_of([&] {
                FusedMoEFwdOp({.top_k = 2, .routed_scaling_factor = 2.5}, {.experts = experts});
              }),
              AllOf(HasSubstr("routed_scaling_factor"), HasSubstr("2.5"), HasSubstr("1")));
  EXPECT_THAT(error_of([&] {
                FusedMoEFwdOp({.top_k = 2},
                              {.activation = GatedActivation::gelu_and_mul, .experts = experts});
              }),
              AllOf(HasSubstr("gelu_and_mul"), HasSubstr("silu_and_mul")));
  EXPECT_THAT(
      error_of([&] { FusedMoEFwdOp({.top_k = 2}, {.batch_invariant = true, .experts = experts}); }),
      HasSubstr("batch_invariant"));
  EXPECT_THAT(error_of([&] {
                FusedMoEFwdOp({.top_k = 2},
                              {.experts = std::make_shared<FusedTopKFwdOp>(Routing{.top_k = 2})});
              }),
              HasSubstr("routed_experts"));
}

/// Ranks of expert parallelism that all live here: rank r has experts [r·L, (r+1)·L).
class OneRankOfMany final : public PrepareFinalize {
 public:
  explicit OneRankOfMany(int64_t first) : first_(first) {}
  Prepared prepare(const RoutedTokens& tokens, int64_t num_experts) const override {
    EXPECT_EQ(num_experts, 6);
    std::vector<int64_t> local;
    for (double id : elements(tokens.topk_ids)) local.push_back(static_cast<int64_t>(id) - first_);
    return {{tokens.hidden_states, tokens.topk_weights, int_tensor(tokens.topk_ids.shape(), local)},
            std::make_shared<int64_t>(first_)};
  }
  Tensor finalize(const Tensor& expert_output, const Prepared& prepared,
                  const RoutedTokens&) const override {
    EXPECT_EQ(*std::static_pointer_cast<int64_t>(prepared.state), first_);
    return expert_output.to(DType::kF32).to(expert_output.dtype());
  }

 private:
  int64_t first_;
};

TEST(FusedMoE, AnInjectedPrepareFinalizeStandsAroundTheExperts) {
  const Layer layer = random_layer(33, 6, 16, 8, DType::kF16, 10);
  std::vector<double> sum(33 * 16);
  for (int64_t first : {0, 2, 4}) {
    Layer local = layer;
    local.experts.w_gate_up = layer.experts.w_gate_up.narrow(0, first, 2);
    local.experts.w_down = layer.experts.w_down.narrow(0, first, 2);
    const FusedMoEFwdOp rank(
        {.top_k = 3, .renormalize = true},
        {.num_local_experts = 2, .prepare_finalize = std::make_shared<OneRankOfMany>(first)});
    const std::vector<double> part = elements(run(rank, local).output);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  EXPECT_LE(relative_error(sum, definition({.top_k = 3, .renormalize = true}, layer)),
            tolerance(DType::kF16));
}

TEST(FusedMoE, LocalExpertsMustBeAnnounced) {
  Layer layer = random_layer(3, 6, 16, 8, DType::kBF16, 11);
  layer.experts.w_gate_up = layer.experts.w_gate_up.narrow(0, 0, 2);
  layer.experts.w_down = layer.experts.w_down.narrow(0, 0, 2);
  EXPECT_THAT(error_of([&] { run(FusedMoEFwdOp({.top_k = 2}), layer); }), HasSubstr("w_gate_up"));
  EXPECT_EQ(error_of([&] { run(FusedMoEFwdOp({.top_k = 2}, {.num_local_experts = 2}), layer); }),
            "no error");
}

TEST(FusedMoE, BatchInvarianceKeepsATokensBits) {
  const Layer layer = random_layer(129, 5, 48, 40, DType::kBF16, 12);
  const FusedMoEFwdOp op({.top_k = 2, .renormalize = true}, {.batch_invariant = true});
  const Tensor all = run(op, layer).output;
  for (int64_t count : {1, 2, 31, 32, 33, 64, 128}) {
    Layer part = layer;
    part.x = layer.x.narrow(0, 129 - count, count);
    part.gating = layer.gating.narrow(0, 129 - count, count);
    EXPECT_TRUE(bit_equal(run(op, part).output, all.narrow(0, 129 - count, count))) << count;
  }
}

TEST(FusedMoE, AllNaNLogitsStillRunAndTokensWithoutNaNKeepTheirBits) {
  Layer layer = random_layer(3, 4, 16, 8, DType::kBF16, 13);
  const FusedMoEFwdOp op({.top_k = 2});
  const Tensor clean = run(op, layer).output;
  std::fill_n(layer.gating.data_as<float>() + 4, 4, NAN);
  const Tensor got = run(op, layer).output;
  EXPECT_TRUE(bit_equal(got.narrow(0, 0, 1), clean.narrow(0, 0, 1)));
  EXPECT_TRUE(std::isnan(got.at({1, 0})));
  EXPECT_TRUE(bit_equal(got.narrow(0, 2, 1), clean.narrow(0, 2, 1)));
}

TEST(FusedMoE, ATraceShowsTheLeavesAndRunsAgain) {
  const Layer layer = random_layer(4, 4, 16, 8, DType::kBF16, 14);
  const FusedMoEFwdOp op({.top_k = 2});
  const Tensor inputs[] = {
      layer.x,  layer.gating, layer.experts.w_gate_up, layer.experts.w_down, Tensor(),
      Tensor(), Tensor()};
  const Graph graph = trace(op, {inputs, {}});
  std::vector<std::string> stages;
  for (const GraphNode& node : graph.nodes()) stages.push_back(node.stage);
  EXPECT_THAT(stages, ElementsAre("route_select", "routed_experts.indexed_small_route"));
  EXPECT_TRUE(bit_equal(graph.run({inputs, {}})[0], run(op, layer).output));
}

TEST(FusedMoE, ATraceSaysWhatItsForwardsDependedOn) {
  const FusedMoEFwdOp op(Routing{.top_k = 2});
  const auto graph_of = [&](int64_t num_tokens, std::optional<Device> device) {
    const auto meta = [](const Shape& shape) {
      return Tensor::empty(shape, DType::kBF16, kMetaDevice);
    };
    const Tensor inputs[] = {meta({num_tokens, 8}),
                             meta({num_tokens, 4}),
                             meta({4, 6, 8}),
                             meta({4, 8, 3}),
                             Tensor(),
                             Tensor(),
                             Tensor()};
    return trace(op, {inputs, {}}, device);
  };
  const auto says = [](const Graph& graph) {
    std::vector<std::string> list;
    for (const GraphAssumption& each : graph.assumptions())
      list.push_back(each.expr + " is " + std::to_string(each.value));
    return list;
  };
  const Device gpu{DeviceType::kCUDA, 0};
  EXPECT_TRUE(says(graph_of(257, {})).empty()) << "one path serves the CPU";
  EXPECT_THAT(says(graph_of(257, gpu)), Contains("E is 4"));
  const Graph graph = graph_of(257, gpu);
  const GraphValue weights = graph.assumptions().back().inputs[3];
  EXPECT_EQ(graph.values()[static_cast<size_t>(weights)].name, "w_gate_up");
  EXPECT_THAT(graph.json(), HasSubstr("\"expr\": \"E\""));
  EXPECT_THAT(graph.text(), HasSubstr("  where E is 4 of ("));
}

TEST(FusedMoE, TheRouterIsPricedWithTheExpertsThatItsCallRead) {
  const Layer layer = random_layer(7, 6, 16, 8, DType::kBF16, 15);
  const FusedMoEFwdOp op({.top_k = 2});
  run(op, layer);
  const RecordPtr experts = op.last_call()->stages("routed_experts").at(0);
  EXPECT_GT(op.eval_roofline().bytes, 0);
  EXPECT_EQ(op.eval_roofline().flops, 4.0 * 7 * 6 + 14.0 * (6 * 16 * 8 + 2 * 16));
}

}  // namespace
}  // namespace tileops
