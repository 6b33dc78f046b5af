// SPDX-License-Identifier: Apache-2.0
// C: enumeration and tuned mode are derived from what is held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"
#include "tileops/dispatch/target.h"

namespace tileops::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Fails the tuning of these tags while it lives.
Hook failing_tune(const std::string& tag) {
  return [tag](Point point, const std::string& at_tag) -> bool {
    if (point == Point::kTune && at_tag == tag) throw std::runtime_error("tuning broke");
    return false;
  };
}

TEST(ContractC, Contract_C1_held_delegates_are_in_stage_order_then_build_order) {
  const DeepOp deep("deep");
  std::vector<std::string> stages;
  for (const HeldDelegate& held : deep.held_delegates()) stages.push_back(held.stage);
  EXPECT_THAT(stages, ElementsAre("middle", "tail"));
}

TEST(ContractC, Contract_C1_iter_kernels_has_each_kernel_of_each_depth_once) {
  const DeepOp deep("deep");
  EXPECT_TRUE(deep.iter_kernels().empty());
  deep(iota(2, 3));
  EXPECT_EQ(deep.iter_kernels().size(), 4u) << "first, second, last, tail";
  deep(iota(2, 4));
  EXPECT_EQ(deep.iter_kernels().size(), 8u) << "a second implementation served each";
}

TEST(ContractC, Contract_C1_own_kernels_of_every_role_come_before_those_of_the_sub_ops) {
  const MixOp mix;
  EXPECT_EQ(values_of(mix(iota(1, 2))), (std::vector<double>{30, 60}));
  const auto kernels = mix.iter_kernels();
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_NE(dynamic_cast<MixKernel*>(kernels[0].get()), nullptr);
  EXPECT_EQ(kernels[1], mix.built_entries("scale").at(0).kernel);
  EXPECT_EQ(kernels[2], mix.held_delegates().at(0).op->built_entries("scale").at(0).kernel);
  ASSERT_EQ(mix.last_call()->kernels().size(), 2u);
  EXPECT_EQ(mix.last_call()->kernels()[1].entry->implementation, "mix_gain");
}

TEST(ContractC, Contract_C1_a_kernel_that_two_paths_reach_is_enumerated_once) {
  const auto shared = std::make_shared<ScaleOp>();
  const FreeOp op;
  op.hold("a", settled, shared);
  op.hold("c", settled, std::make_shared<ChainOp>(2, "t", shared, nullptr));
  (*shared)(iota(2, 3));
  EXPECT_EQ(op.iter_kernels().size(), 1u);
}

TEST(ContractC, Contract_C1_built_entries_are_read_by_interface) {
  const ScaleOp op(3, "t");
  op(iota(2, 3));
  op(iota(2, 4));
  op(iota(5, 8));
  const std::vector<BuiltEntry> entries = op.built_entries("scale");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].implementation, "scale_plain");
  EXPECT_EQ(entries[1].implementation, "scale_fours");
  EXPECT_EQ(entries[0].identity, Value(Value::List{3.0, "t"}));
  EXPECT_EQ(error_of([&] { op.built_entries("mix"); }),
            "ValueError: TestScaleFwdOp: the op declares no kernel interface mix");
}

TEST(ContractC, Contract_C2_request_tune_reaches_every_depth_and_what_is_built_already) {
  reset_counts();
  const DeepOp deep("deep");
  deep(iota(2, 3));
  EXPECT_FALSE(deep.tuned());
  deep.request_tune();
  EXPECT_TRUE(deep.tuned());
  const auto chain = deep.held_delegates()[0].op->held_delegates()[0].op;
  EXPECT_TRUE(chain->tuned());
  EXPECT_TRUE(chain->held_delegates()[1].op->tuned());
  for (const char* tag :
       {"deep.middle.inner.first", "deep.middle.inner.second", "deep.middle.last", "deep.tail"}) {
    EXPECT_EQ(count_of(Point::kTune, tag), 1) << tag;
  }
}

TEST(ContractC, Contract_C2_what_is_built_later_is_tuned_when_it_is_built) {
  reset_counts();
  const ChainOp chain(2, "t");
  chain.request_tune();
  EXPECT_EQ(count_of(Point::kTune, "t.first"), 0);
  chain(iota(2, 3));
  EXPECT_EQ(count_of(Point::kTune, "t.first"), 1);
  chain(iota(2, 3));
  chain(iota(2, 4));
  EXPECT_EQ(count_of(Point::kTune, "t.first"), 2) << "another kernel, once";
}

TEST(ContractC, Contract_C2_request_tune_is_idempotent) {
  reset_counts();
  const ScaleOp op(2, "t");
  op(iota(2, 3));
  op.request_tune();
  op.request_tune();
  EXPECT_EQ(count_of(Point::kTune, "t"), 1);
}

TEST(ContractC, Contract_C2_a_sub_op_held_after_the_request_follows) {
  reset_counts();
  const WidthOp op("w");
  op.request_tune();
  op(iota(2, 3));
  op(iota(2, 5));
  EXPECT_EQ(count_of(Point::kTune, "w.3"), 1);
  EXPECT_EQ(count_of(Point::kTune, "w.5"), 1);
}

TEST(ContractC,
     Contract_C2_tuning_that_throws_leaves_tuned_mode_and_is_tried_again_at_the_next_call) {
  reset_counts();
  const ScaleOp op(2, "t");
  op(iota(2, 3));
  {
    const HookGuard hook(failing_tune("t"));
    EXPECT_THROW(op.request_tune(), std::runtime_error);
    EXPECT_TRUE(op.tuned());
    EXPECT_EQ(op.kernel_config()[0].values, (Params{{"tile", 1}})) << "the former configuration";
    EXPECT_THROW(op(iota(2, 3)), std::runtime_error) << "tried again, and broken still";
  }
  op(iota(2, 3));
  EXPECT_EQ(op.kernel_config()[0].values, (Params{{"tile", 8}}));
  EXPECT_EQ(count_of(Point::kTune, "t"), 3);
}

TEST(ContractC, Contract_C2_a_kernel_that_tunes_well_does_not_hide_one_that_did_not) {
  reset_counts();
  const ScaleOp op(2, "t");
  op(iota(2, 3));
  int failures = 1;
  const HookGuard hook([&](Point point, const std::string&) -> bool {
    if (point == Point::kTune && failures-- > 0) throw std::runtime_error("tuning broke");
    return false;
  });
  EXPECT_THROW(op.request_tune(), std::runtime_error);
  op(iota(2, 4));
  for (const KernelConfig& config : op.kernel_config()) {
    EXPECT_EQ(config.values, (Params{{"tile", 8}})) << config.implementation;
  }
}

TEST(ContractC, Contract_C2_one_sub_op_that_fails_to_tune_does_not_keep_the_others_from_it) {
  reset_counts();
  const ChainOp chain(2, "t");
  chain(iota(2, 3));
  const HookGuard hook(failing_tune("t.first"));
  EXPECT_THROW(chain.request_tune(), std::runtime_error);
  EXPECT_TRUE(chain.held_delegates()[0].op->tuned());
  EXPECT_EQ(chain.held_delegates()[1].op->kernel_config()[0].values, (Params{{"tile", 8}}));
}

class TunableTargetKernel final : public TargetKernel {
 public:
  Results run(const spec::CallTensors& tensors) override {
    return {Tensor::from_values(
        tensors.inputs[0].shape(), DType::kF32,
        std::vector<double>(static_cast<size_t>(tensors.inputs[0].num_elements())))};
  }
  bool tunable() const override { return true; }
  void request_tune() override { at(Point::kTune, "target"); }
};

void register_tuner() {
  register_target_builder("tuner", "TestScaleFwdOp", [](const BuildRequest&) {
    return std::make_shared<TunableTargetKernel>();
  });
}

TEST(ContractC, Contract_C2_target_kernels_tune_where_they_offer_it) {
  reset_counts();
  const TargetGuard target("tuner");
  register_tuner();
  const ScaleOp op(2, "t", {.target = "tuner"});
  op(iota(2, 3));
  op.request_tune();
  EXPECT_EQ(count_of(Point::kTune, "target"), 1);
  op(iota(2, 4));
  EXPECT_EQ(count_of(Point::kTune, "target"), 2) << "what is built later follows";
}

TEST(ContractC, Contract_C2_a_target_kernel_whose_tuning_throws_is_tried_again) {
  reset_counts();
  const TargetGuard target("tuner");
  register_tuner();
  const ScaleOp op(2, "t", {.target = "tuner"});
  op(iota(2, 3));
  op.request_tune();
  {
    const HookGuard hook(failing_tune("target"));
    EXPECT_THROW(op(iota(2, 4)), std::runtime_error);
  }
  const int before = count_of(Point::kTune, "target");
  op(iota(2, 4));
  EXPECT_GT(count_of(Point::kTune, "target"), before);
}

TEST(ContractC, Contract_C2_a_target_without_tuning_is_warned_of_once_an_instance) {
  const TargetGuard target("plain");
  register_target_builder("plain", "TestScaleFwdOp", [](const BuildRequest&) {
    return make_target_kernel([](const spec::CallTensors& tensors) -> Results {
      return {Tensor::empty(tensors.inputs[0].shape(), tensors.inputs[0].dtype())};
    });
  });
  const Warnings warnings;
  const ScaleOp op(2, "t", {.target = "plain"});
  op.request_tune();
  op(iota(2, 3));
  op(iota(2, 4));
  op.request_tune();
  ASSERT_EQ(warnings.seen().size(), 1u);
  EXPECT_THAT(
      warnings.seen()[0],
      HasSubstr("TestScaleFwdOp: its kernels come from target plain, which offers no tuning"));
  const ScaleOp other(2, "t", {.target = "plain"});
  other.request_tune();
  other(iota(2, 3));
  EXPECT_EQ(warnings.seen().size(), 2u) << "once an instance";
}

/// Declares members of its own under the names of the base's: an override would need `virtual`.
class ShadowOp : public ScaleOp {
 public:
  std::vector<HeldDelegate> held_delegates() const { return {{"made_up", Value(), nullptr}}; }
  std::vector<std::shared_ptr<Kernel>> iter_kernels() const { return {nullptr}; }
  void request_tune() const {}
};

TEST(ContractC, Contract_C3_none_of_these_members_can_be_overridden) {
  const ShadowOp shadow;
  const Op& op = shadow;
  EXPECT_TRUE(op.held_delegates().empty());
  EXPECT_TRUE(op.iter_kernels().empty());
  op.request_tune();
  EXPECT_TRUE(op.tuned());
}

TEST(ContractC, Contract_C3_tuned_mode_has_no_other_way_in) {
  const ScaleOp op;
  op(iota(2, 3));
  EXPECT_FALSE(op.tuned());
  EXPECT_FALSE(ChainOp().held_delegates()[0].op->tuned());
}

TEST(ContractC, Contract_C3_an_op_with_nothing_to_tune_says_so_in_its_class_facts) {
  EXPECT_TRUE(ScaleOp::op_class().tunable());
  EXPECT_FALSE(TwinOp::op_class().tunable());
  const Warnings warnings;
  const TargetGuard target("plain");
  register_target_builder("plain", "TestTwinFwdOp", [](const BuildRequest&) {
    return make_target_kernel([](const spec::CallTensors& tensors) -> Results {
      return {Tensor::empty(tensors.inputs[0].shape(), tensors.inputs[0].dtype())};
    });
  });
  const TwinOp op(2, "", {.target = "plain"});
  op.request_tune();
  op(iota(2, 3));
  EXPECT_TRUE(op.tuned());
  EXPECT_TRUE(warnings.seen().empty()) << "nothing to tune is nothing to warn of";
}

}  // namespace
}  // namespace tileops::contract
