// SPDX-License-Identifier: Apache-2.0
// F: a traced graph has the leaves as its nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"
#include "tileops/dispatch/target.h"
#include "tileops/op/trace.h"
#include "tileops/spec/registry.h"

namespace tileops::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Graph trace_one(const Op& op, const Tensor& x, const Tensor& out = {}) {
  const Tensor inputs[] = {x};
  const Tensor outs[] = {out};
  return trace(op, {inputs, std::span(outs, out.defined() ? 1 : 0)});
}

Results run_one(const Graph& graph, const Tensor& x, const Tensor& out = {}) {
  const Tensor inputs[] = {x};
  const Tensor outs[] = {out};
  return graph.run({inputs, std::span(outs, out.defined() ? 1 : 0)});
}

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> result;
  for (const GraphNode& node : graph.nodes()) result.push_back(node.name);
  return result;
}

std::vector<std::string> stages(const Graph& graph) {
  std::vector<std::string> result;
  for (const GraphNode& node : graph.nodes()) result.push_back(node.stage);
  return result;
}

TargetBuilder zeros_builder() {
  return [](const BuildRequest&) {
    return make_target_kernel([](const spec::CallTensors& tensors) -> Results {
      const Tensor& x = tensors.inputs[0];
      return {Tensor::from_values(x.shape(), x.dtype(),
                                  std::vector<double>(static_cast<size_t>(x.num_elements())))};
    });
  };
}

TEST(ContractF, Contract_F1_a_leaf_is_one_node_of_a_stable_name) {
  const ScaleOp op;
  EXPECT_THAT(names(trace_one(op, iota(2, 3))), ElementsAre("contract::test_scale_fwd"));
  EXPECT_EQ(node_name(*spec::entry("MoEGroupedGemmFwdOp"), ""), "tileops::moe_grouped_gemm_fwd");
  EXPECT_EQ(node_name(*spec::entry("MoEExpertMLPFwdOp"), "out"), "tileops::moe_expert_mlp_fwd_out");
}

TEST(ContractF, Contract_F1_each_effect_branch_has_its_own_node_name) {
  const auto name = [](bool in_place, bool want_sums, bool with_out) {
    const EffectsOp op(in_place, want_sums);
    return names(
               trace_one(op, iota(2, 3), with_out ? Tensor::empty({2, 3}, DType::kF32) : Tensor()))
        .at(0);
  };
  EXPECT_EQ(name(false, true, false), "contract::test_effects_fwd");
  EXPECT_EQ(name(false, true, true), "contract::test_effects_fwd_out");
  EXPECT_EQ(name(true, true, false), "contract::test_effects_fwd_mutated");
  EXPECT_EQ(name(false, false, false), "contract::test_effects_fwd_no_sums");
  EXPECT_EQ(name(true, false, true), "contract::test_effects_fwd_out_mutated_no_sums");
}

TEST(ContractF, Contract_F1_a_leaf_is_a_node_whatever_target_serves_it) {
  const TargetGuard target("zeros");
  register_target_builder("zeros", "TestScaleFwdOp", zeros_builder());
  const ScaleOp op(2, "t", {.target = "zeros"});
  const Graph graph = trace_one(op, iota(2, 3));
  EXPECT_THAT(names(graph), ElementsAre("contract::test_scale_fwd"));
  EXPECT_EQ(op.serving_target(), std::nullopt) << "a trace selects nothing";
  EXPECT_EQ(values_of(run_one(graph, iota(1, 2))[0]), (std::vector<double>{0, 0}));
  EXPECT_EQ(op.serving_target(), "zeros") << "the node obeys the target that it picked when it ran";
  EXPECT_EQ(values_of(run_one(graph, iota(1, 2))[0]), (std::vector<double>{0, 0}));
}

TEST(ContractF, Contract_F2_a_composite_is_never_a_node) {
  const DeepOp deep("deep");
  const Graph graph = trace_one(deep, iota(2, 3));
  EXPECT_THAT(names(graph), ElementsAre("contract::test_scale_fwd", "contract::test_scale_fwd",
                                        "contract::test_scale_fwd", "contract::test_scale_fwd"));
  EXPECT_THAT(stages(graph),
              ElementsAre("middle.inner.first", "middle.inner.second", "middle.last", "tail"));
}

TEST(ContractF, Contract_F2_the_traced_composite_records_nothing) {
  const DeepOp deep("deep");
  const Graph graph = trace_one(deep, iota(2, 3));
  EXPECT_EQ(kind_of([&] { deep.last_call(); }), ErrorKind::kState);
  run_one(graph, iota(2, 3));
  EXPECT_EQ(kind_of([&] { deep.last_call(); }), ErrorKind::kState);
  EXPECT_EQ(deep.serving_target(), std::nullopt);
  EXPECT_NE(deep.held_delegates()[1].op->last_call(), nullptr)
      << "the leaf's node is an eager call";
}

TEST(ContractF, Contract_F2_the_graph_checks_nothing_of_the_composite) {
  const RuleOp op;
  const Graph graph = trace_one(op, iota(2, 3));
  EXPECT_THAT(error_of([&] { op(iota(3, 3)); }), HasSubstr("M % 2 == 0"));
  EXPECT_EQ(run_one(graph, iota(3, 3))[0].shape(), (Shape{3, 3}));
}

TEST(ContractF, Contract_F2_a_composite_that_a_target_serves_whole_cannot_be_traced) {
  const TargetGuard target("whole");
  register_target_builder("whole", "TestChainFwdOp", zeros_builder());
  const ChainOp named(2, "t", nullptr, nullptr, {.target = "whole"});
  const auto call = [&] { trace_one(named, iota(2, 3)); };
  EXPECT_EQ(kind_of(call), ErrorKind::kOpNotAvailable);
  EXPECT_EQ(
      error_of(call),
      "OpNotAvailableError: TestChainFwdOp: target whole serves this composite whole, so it has no "
      "leaves to trace; trace it with target builtin");
  const ChainOp builtin(2, "t", nullptr, nullptr, {.target = "builtin"});
  EXPECT_EQ(trace_one(builtin, iota(2, 3)).nodes().size(), 2u);
}

TEST(ContractF, Contract_F2_a_composite_obeys_the_target_that_it_settled) {
  const ChainOp settled_before(2, "t");
  settled_before(iota(2, 3));
  const TargetGuard target("whole");
  register_target_builder("whole", "TestChainFwdOp", zeros_builder());
  register_target_detector("whole", [](Device) { return true; });
  EXPECT_EQ(trace_one(settled_before, iota(2, 3)).nodes().size(), 2u)
      << "builtin serves it from then on";
  EXPECT_EQ(kind_of([] { trace_one(ChainOp(2, "t"), iota(2, 3)); }), ErrorKind::kOpNotAvailable);
}

TEST(ContractF, Contract_F2_a_composite_with_kernels_of_its_own_cannot_be_traced) {
  const MixOp mix;
  const auto call = [&] { trace_one(mix, iota(2, 3)); };
  EXPECT_EQ(kind_of(call), ErrorKind::kDelegate);
  EXPECT_EQ(error_of(call),
            "RuntimeError: TestMixFwdOp: its own kernel stage mix cannot be traced; make it a leaf "
            "op and "
            "hold it as a sub-op");
  EXPECT_NO_THROW(mix(iota(2, 3))) << "eager calls are as before";
}

TEST(ContractF, Contract_F2_an_unheld_sub_op_cannot_be_traced) {
  const ScaleOp stranger;
  const FreeOp op([&](const FreeOp&, Call& call) { return stranger(call.input(0)); });
  EXPECT_THAT(error_of([&] { trace_one(op, iota(2, 3)); }),
              HasSubstr("TestFreeFwdOp: it called TestScaleFwdOp, which it does not hold"));
}

TEST(ContractF, Contract_F2_a_view_made_in_forward_is_an_error) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    const Tensor y = ScaleOp::invoke(*self.hold("a", settled), call.input(0).narrow(0, 0, 1));
    return ScaleOp::invoke(*self.hold("b", settled), y);
  });
  EXPECT_NO_THROW(trace_one(op, iota(1, 3))) << "a view of all of it is no other tensor";
  EXPECT_THAT(error_of([&] { trace_one(op, iota(2, 3)); }),
              HasSubstr("neither an input nor a leaf's output"));
}

TEST(ContractF, Contract_F2_a_forward_that_catches_a_failure_goes_on_with_its_own_stages) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    const auto c = self.hold("c", settled);
    EXPECT_NE(kind_of([&] { ChainOp::invoke(*c, call.input(0).select(0, 0)); }), std::nullopt);
    return ScaleOp::invoke(*self.hold("a", settled), call.input(0));
  });
  EXPECT_THAT(stages(trace_one(op, iota(2, 3))), ElementsAre("a"));
}

TEST(ContractF, Contract_F3_a_trace_selects_and_builds_and_runs_nothing) {
  reset_counts();
  const ChainOp chain(2, "t");
  trace_one(chain, iota(2, 3));
  const auto first = chain.held_delegates()[0].op;
  EXPECT_EQ(first->serving_target(), std::nullopt);
  EXPECT_TRUE(first->built_entries("scale").empty());
  EXPECT_EQ(count_of(Point::kForward, "t.first"), 0);
  EXPECT_EQ(kind_of([&] { first->last_call(); }), ErrorKind::kState)
      << "a traced call keeps no last_call";
}

TEST(ContractF, Contract_F3_outputs_come_from_the_signature_alone) {
  const EffectsOp op(false, true);
  const Graph graph = trace_one(op, iota(2, 3, DType::kF64).transpose(0, 1));
  const GraphNode& node = graph.nodes().at(0);
  const GraphValueFacts& y = graph.values().at(static_cast<size_t>(node.outputs.at(0)));
  EXPECT_EQ(y.shape, (Shape{3, 2}));
  EXPECT_EQ(y.dtype, DType::kF64);
  EXPECT_EQ(graph.values().at(static_cast<size_t>(node.outputs.at(1))).shape, Shape{3});
}

TEST(ContractF, Contract_F3_a_trace_checks_the_leaves) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    return ScaleOp::invoke(*self.hold("a", settled), call.input(0).select(0, 0));
  });
  EXPECT_THAT(error_of([&] { trace_one(op, iota(2, 3)); }),
              HasSubstr("TestScaleFwdOp: x has shape [3]"));
}

TEST(ContractF, Contract_F3_instances_are_found_by_keys_that_are_never_reused) {
  std::vector<std::string> keys;
  for (int i = 0; i < 3; ++i) keys.push_back(ScaleOp().key());
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
  EXPECT_THAT(keys[0], MatchesRegex("TestScaleFwdOp#[0-9]+\\.[0-9a-f]{8}"));
  const ScaleOp op;
  EXPECT_EQ(&instance_of(op.key()), &op);
}

TEST(ContractF, Contract_F3_a_key_whose_op_is_gone_is_an_error_that_names_its_class) {
  auto op = std::make_unique<ScaleOp>();
  const Graph graph = trace_one(*op, iota(2, 3));
  const std::string key = op->key();
  op = nullptr;
  const ScaleOp another;  // must not be taken for the one that is gone
  EXPECT_EQ(kind_of([&] { run_one(graph, iota(2, 3)); }), ErrorKind::kState);
  EXPECT_EQ(error_of([&] { run_one(graph, iota(2, 3)); }),
            "RuntimeError: " + key +
                ": the TestScaleFwdOp instance of this key is gone; keep it alive while "
                "its graph is used");
}

TEST(ContractF, Contract_F3_a_meta_call_checks_records_runs_nothing_and_is_priced) {
  reset_counts();
  const ChainOp chain(2, "t");
  const Tensor y = chain(on_meta(iota(4, 3)));
  EXPECT_EQ(y.shape(), (Shape{4, 3}));
  EXPECT_EQ(y.device(), kMetaDevice);
  EXPECT_EQ(count_of(Point::kForward, "t"), 0);
  EXPECT_EQ(chain.serving_target(), std::nullopt);
  EXPECT_EQ(chain.last_call()->device(), kMetaDevice);
  EXPECT_EQ(chain.eval_roofline().flops, 24) << "the formula's bounds, where nothing was staged";
  EXPECT_EQ(kind_of([&] { chain(on_meta(iota(4, 3)).select(0, 0)); }), ErrorKind::kShape);
}

TEST(ContractF, Contract_F3_reading_metadata_of_a_meta_call_is_an_error) {
  const CountOp op;
  const double rows[] = {0, 1};
  op(on_meta(iota(4, 3)), on_meta(Tensor::from_values({1, 2}, DType::kI32, rows)));
  EXPECT_EQ(kind_of([&] { op.last_call()->metadata("rows"); }), ErrorKind::kState);
  EXPECT_EQ(kind_of([&] { op.eval_roofline(); }), ErrorKind::kState);
}

TEST(ContractF, Contract_F3_contents_of_a_meta_call_are_not_checked) {
  const CountOp op(OpOptions{.validate_inputs = true});
  const double rows[] = {0, 9};
  EXPECT_NO_THROW(op(on_meta(iota(4, 3)), on_meta(Tensor::from_values({1, 2}, DType::kI32, rows))));
}

TEST(ContractF, Contract_F4_a_graph_equals_the_eager_call_bit_for_bit_at_any_size) {
  const DeepOp deep("deep");
  const Graph graph = trace_one(deep, iota(2, 3));
  for (const auto& [m, n] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 3}, {5, 8}, {1, 1}, {0, 3}, {7, 4}}) {
    const Tensor x = iota(m, n);
    EXPECT_EQ(values_of(run_one(graph, x)[0]), values_of(deep(x))) << m << "x" << n;
  }
}

TEST(ContractF, Contract_F4_a_graph_traced_on_meta_tensors_runs_on_real_ones) {
  const ChainOp chain(2, "t");
  const Graph graph = trace_one(chain, on_meta(iota(2, 3)));
  EXPECT_EQ(values_of(run_one(graph, iota(1, 2))[0]), (std::vector<double>{4, 8}));
}

TEST(ContractF, Contract_F4_a_given_out_is_filled_by_the_graph) {
  const ChainOp chain(2, "t");
  const Graph graph = trace_one(chain, iota(2, 3), Tensor::empty({2, 3}, DType::kF32));
  EXPECT_THAT(names(graph),
              ElementsAre("contract::test_scale_fwd", "contract::test_scale_fwd_out"));
  const Tensor out = Tensor::empty({1, 2}, DType::kF32);
  EXPECT_TRUE(run_one(graph, iota(1, 2), out)[0].is_same_view(out));
  EXPECT_EQ(values_of(out), (std::vector<double>{4, 8}));
}

TEST(ContractF, Contract_F4_a_mutating_leaf_writes_the_graphs_input) {
  const AliasOp op;
  const Graph graph = trace_one(op, iota(2, 3));
  const Tensor x = iota(1, 2);
  EXPECT_TRUE(run_one(graph, x)[0].is_same_view(x));
  EXPECT_EQ(values_of(x), (std::vector<double>{2, 3}));
}

TEST(ContractF, Contract_F4_other_tensors_than_the_traced_ones_are_refused) {
  const ShiftOp op;
  const Tensor with[] = {iota(2, 3),
                         Tensor::from_values({3}, DType::kF32, std::vector<double>{1, 1, 1})};
  const Tensor without[] = {iota(2, 3), Tensor()};
  const Graph graph = trace(op, {without, {}});
  EXPECT_EQ(error_of([&] {
              graph.run({with, {}});
            }),
            "TypeError: graph of TestShiftFwdOp: tensor 1 was absent when the graph was traced; "
            "trace again");
  EXPECT_EQ(kind_of([&] { graph.run({std::span(without, 1), {}}); }), ErrorKind::kType);
  EXPECT_NO_THROW(graph.run({without, {}}));
}

TEST(ContractF, Contract_F4_a_graph_can_be_looked_at) {
  const ChainOp chain(2, "t");
  const Graph graph = trace_one(chain, iota(2, 3));
  const std::string first = chain.held_delegates()[0].op->key();
  const std::string second = chain.held_delegates()[1].op->key();
  EXPECT_EQ(graph.nodes()[0].key, first);
  EXPECT_EQ(graph.text(),
            "graph of TestChainFwdOp\n"
            "  input x: float32[2, 3]\n"
            "  %1 = contract::test_scale_fwd(x)  # first " +
                first +
                "\n"
                "  %2 = contract::test_scale_fwd(%1)  # second " +
                second +
                "\n"
                "  return %2\n");
  EXPECT_THAT(graph.dot(), HasSubstr("n0 [label=\"contract::test_scale_fwd\\nfirst\"]"));
  EXPECT_THAT(graph.dot(), HasSubstr("v1 -> n1;"));
  EXPECT_THAT(graph.json(), HasSubstr("\"name\": \"contract::test_scale_fwd\""));
  EXPECT_THAT(graph.json(), HasSubstr("\"key\": \"" + second + "\""));
}

TEST(ContractF, Contract_F5_an_e2_composite_traces_cold) {
  const WidthOp op("w");
  const Graph graph = trace_one(op, iota(2, 3));
  EXPECT_THAT(names(graph), ElementsAre("contract::test_scale_fwd"));
  EXPECT_EQ(op.held_delegates().size(), 1u) << "the trace held what it needs";
  EXPECT_EQ(values_of(run_one(graph, iota(1, 3))[0]), (std::vector<double>{3, 6, 9}));
  EXPECT_EQ(values_of(run_one(graph, iota(4, 3))[0]), values_of(op(iota(4, 3))))
      << "the same identity, other sizes";
  const Graph wider = trace_one(op, iota(2, 4));
  EXPECT_NE(graph.nodes()[0].key, wider.nodes()[0].key) << "another identity is another instance";
}

TEST(ContractF, Contract_F5_a_forward_that_does_not_say_what_it_depends_on_fixes_its_sizes) {
  const WidthOp op("w");
  const Graph graph = trace_one(op, iota(2, 3));
  ASSERT_EQ(graph.assumptions().size(), 1u);
  EXPECT_EQ(graph.assumptions()[0].key, op.key());
  EXPECT_EQ(graph.assumptions()[0].expr, "");
  EXPECT_EQ(graph.assumptions()[0].inputs, std::vector<GraphValue>{0});
  EXPECT_THAT(graph.text(), HasSubstr("  for the sizes of (x) alone\n"));
  EXPECT_TRUE(trace_one(ChainOp(2, "t"), iota(2, 3)).assumptions().empty());
}

TEST(ContractF, Contract_F3_a_node_of_another_framework_keeps_no_last_call) {
  const ScaleOp op;
  const Tensor inputs[] = {iota(2, 3)};
  EXPECT_EQ(values_of(op.call_as_node({inputs, {}})[0]), values_of(op(iota(2, 3))));
  const RecordPtr before = op.last_call();
  op.call_as_node({inputs, {}});
  EXPECT_EQ(op.last_call(), before);
}

}  // namespace
}  // namespace tileops::contract
