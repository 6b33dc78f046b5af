// SPDX-License-Identifier: Apache-2.0
// G1-G4: who serves a call. What is registered: g_registration_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "contract/constant_target.h"
#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"
#include "tileops/dispatch/backend.h"
#include "tileops/dispatch/kernel_registry.h"
#include "tileops/dispatch/target.h"

namespace tileops::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DefaultTarget {
 public:
  explicit DefaultTarget(std::string_view name) { set_default_target(name); }
  ~DefaultTarget() { set_default_target(""); }
  DefaultTarget(const DefaultTarget&) = delete;
  DefaultTarget& operator=(const DefaultTarget&) = delete;
};

// G1 ------------------------------------------------------------------------------------------

TEST(ContractG, Contract_G1_the_instances_target_comes_before_the_default_and_the_detectors) {
  Constant named(1), standard(2), claimed(3);
  const TargetGuard guards[] = {TargetGuard("named"), TargetGuard("standard"),
                                TargetGuard("claimed")};
  register_target_builder("named", "TestScaleFwdOp", named.builder());
  register_target_builder("standard", "TestScaleFwdOp", standard.builder());
  register_target_builder("claimed", "TestScaleFwdOp", claimed.builder());
  int asked = 0;
  register_target_detector("claimed", [&](Device) { return ++asked > 0; });

  const ScaleOp by_claim;
  EXPECT_EQ(by_claim(iota(1, 1)).at({0, 0}), 3);
  EXPECT_EQ(by_claim.serving_target(), "claimed");
  asked = 0;
  const DefaultTarget process("standard");
  const ScaleOp by_default;
  EXPECT_EQ(by_default(iota(1, 1)).at({0, 0}), 2);
  const ScaleOp by_name(2, "", {.target = "named"});
  EXPECT_EQ(by_name(iota(1, 1)).at({0, 0}), 1);
  const ScaleOp builtin(2, "", {.target = "builtin"});
  EXPECT_EQ(builtin(iota(1, 1)).at({0, 0}), 2.0) << "1 * 2, by the tree's own kernel";
  EXPECT_EQ(builtin.serving_target(), "builtin");
  EXPECT_EQ(asked, 0) << "no detector is asked where a target is named";
  EXPECT_EQ(by_claim(iota(1, 1)).at({0, 0}), 3) << "fixed from then on";
}

TEST(ContractG, Contract_G1_the_detectors_are_asked_with_the_calls_device) {
  const TargetGuard guard("watcher");
  std::vector<Device> asked;
  register_target_detector("watcher", [&](Device device) {
    asked.push_back(device);
    return false;
  });
  const ScaleOp op;
  EXPECT_EQ(op.serving_target(), std::nullopt) << "undecided before the first call";
  op(iota(1, 1));
  EXPECT_THAT(asked, ElementsAre(kCpuDevice));
  EXPECT_EQ(op.serving_target(), "builtin");
}

TEST(
    ContractG,
    Contract_G1_without_call_time_tensors_the_device_parameter_decides_then_the_construction_tensors) {
  const TargetGuard guard("watcher");
  std::vector<Device> asked;
  register_target_detector("watcher", [&](Device device) {
    asked.push_back(device);
    return false;
  });
  const TableOp table(iota(2, 3));
  table();
  EXPECT_EQ(table.last_call()->device(), kCpuDevice);
  EXPECT_THAT(asked, ElementsAre(kCpuDevice));
  const TableOp meta_table(on_meta(iota(2, 3)));
  EXPECT_EQ(meta_table().device(), kMetaDevice) << "the construction tensors' device";
  EXPECT_EQ(meta_table.last_call()->device(), kMetaDevice);
  const TableOp placed(iota(2, 3), {.device = "meta"});
  EXPECT_EQ(placed().device(), kMetaDevice) << "the device parameter comes first";
  EXPECT_EQ(placed.last_call()->tensor("y").device, kMetaDevice);
  EXPECT_EQ(kind_of([] { TableOp op(iota(2, 3), {.device = "gpu:x"}); }), ErrorKind::kValue);
}

TEST(ContractG, Contract_G1_tensors_on_two_devices_are_an_error) {
  const ShiftOp op;
  const Tensor shift = Tensor::from_values({3}, DType::kF32, std::vector<double>{1, 1, 1});
  EXPECT_EQ(kind_of([&] { op(iota(2, 3), on_meta(shift)); }), ErrorKind::kDevice);
}

TEST(ContractG, Contract_G1_two_detectors_that_claim_one_device_are_ambiguous_in_a_fixed_order) {
  for (const bool swapped : {false, true}) {
    const TargetGuard guards[] = {TargetGuard("zebra"), TargetGuard("aardvark")};
    register_target_detector(swapped ? "aardvark" : "zebra", [](Device) { return true; });
    register_target_detector(swapped ? "zebra" : "aardvark", [](Device) { return true; });
    const ScaleOp op;
    EXPECT_EQ(kind_of([&] { op(iota(1, 1)); }), ErrorKind::kAmbiguousTarget);
    EXPECT_EQ(error_of([&] { op(iota(1, 1)); }),
              "AmbiguousTargetError: targets aardvark, zebra all claim cpu; name one with "
              "`target`, or set "
              "the process default");
    EXPECT_NO_THROW(ScaleOp(2, "", {.target = "builtin"})(iota(1, 1)));
  }
  EXPECT_NO_THROW(ScaleOp()(iota(1, 1)));
}

TEST(ContractG, Contract_G1_a_composite_that_runs_its_own_composition_is_served_by_builtin) {
  Constant constant(5);
  const TargetGuard guard("leaves");
  register_target_builder("leaves", "TestScaleFwdOp", constant.builder());
  const ChainOp chain(2, "t", nullptr, nullptr, {.target = "leaves"});
  chain(iota(1, 1));
  EXPECT_EQ(chain.serving_target(), "builtin");
  EXPECT_EQ(chain.held_delegates()[0].op->serving_target(), "leaves");
  EXPECT_EQ(chain.last_call()->served_by(), "builtin");
  EXPECT_EQ(chain.last_call()->stages("first")[0]->served_by(), "leaves");
}

// G2 ------------------------------------------------------------------------------------------

TEST(ContractG, Contract_G2_the_targets_kernel_serves_every_call_and_forward_does_not_run) {
  reset_counts();
  Constant constant(5);
  const TargetGuard guard("taker");
  register_target_builder("taker", "TestScaleFwdOp", constant.builder());
  const ScaleOp op(2, "t", {.target = "taker"});
  EXPECT_EQ(op(iota(1, 2)).at({0, 1}), 5);
  op(iota(1, 2));
  EXPECT_EQ(count_of(Point::kForward, "t"), 0);
  EXPECT_EQ(constant.runs, 2);
  EXPECT_EQ(constant.requests.size(), 1u);
  EXPECT_EQ(op.last_call()->served_by(), "taker");
  EXPECT_TRUE(op.built_entries("scale").empty());
}

TEST(ContractG, Contract_G2_a_target_may_serve_a_composite_whole) {
  reset_counts();
  Constant constant(5);
  const TargetGuard guard("taker");
  register_target_builder("taker", "TestChainFwdOp", constant.builder());
  const ChainOp chain(2, "t", nullptr, nullptr, {.target = "taker"});
  EXPECT_EQ(chain(iota(1, 2)).at({0, 1}), 5);
  EXPECT_EQ(count_of(Point::kForward, "t"), 0);
  EXPECT_EQ(chain.serving_target(), "taker");
  EXPECT_TRUE(chain.last_call()->stages("first").empty());
}

TEST(ContractG, Contract_G2_another_input_signature_asks_the_builder_again) {
  Constant constant(5);
  const TargetGuard guard("taker");
  register_target_builder("taker", "TestScaleFwdOp", constant.builder());
  const ScaleOp op(2, "t", {.target = "taker"});
  op(iota(1, 2));
  op(iota(1, 3));
  op(iota(1, 2, DType::kF64));
  EXPECT_EQ(constant.requests.size(), 3u);
  op(iota(1, 2));
  op(iota(2, 1).transpose(0, 1));
  EXPECT_EQ(constant.requests.size(), 3u) << "strides are no part of the key";
}

TEST(ContractG, Contract_G2_out_comes_per_call_outside_the_key) {
  Constant constant(5);
  const TargetGuard guard("taker");
  register_target_builder("taker", "TestScaleFwdOp", constant.builder());
  const ScaleOp op(2, "t", {.target = "taker"});
  op(iota(1, 2));
  const Tensor out = Tensor::empty({1, 2}, DType::kF32);
  EXPECT_TRUE(op(iota(1, 2), out).is_same_view(out));
  EXPECT_EQ(out.at({0, 0}), 5);
  EXPECT_EQ(constant.requests.size(), 1u);
}

TEST(ContractG, Contract_G2_an_absent_optional_input_keeps_its_slot) {
  Constant constant(5);
  const TargetGuard guard("taker");
  register_target_builder("taker", "TestShiftFwdOp", constant.builder());
  const ShiftOp op({.target = "taker"});
  op(iota(2, 3));
  op(iota(2, 3), Tensor::from_values({3}, DType::kF32, std::vector<double>{1, 1, 1}));
  ASSERT_EQ(constant.requests.size(), 2u);
  ASSERT_EQ(constant.requests[0].inputs.size(), 2u);
  EXPECT_FALSE(constant.requests[0].inputs[1].present);
  EXPECT_TRUE(constant.requests[1].inputs[1].present);
}

TEST(ContractG, Contract_G2_a_builder_gets_facts_in_signature_order_and_parameters_by_name) {
  Constant constant(5);
  const TargetGuard guard("taker");
  register_target_builder("taker", "TestScaleFwdOp", constant.builder());
  const ScaleOp op(2.5, "t", {.target = "taker"});
  op(iota(4, 3));
  const Constant::Request& request = constant.requests.at(0);
  EXPECT_EQ(request.op, "TestScaleFwdOp");
  EXPECT_EQ(request.device, kCpuDevice);
  EXPECT_EQ(request.inputs.at(0).shape, (Shape{4, 3}));
  EXPECT_EQ(request.inputs.at(0).dtype, DType::kF32);
  EXPECT_EQ(request.params.at("factor"), Value(2.5));
  EXPECT_EQ(request.params.at("tag"), Value("t"));
}

TEST(ContractG, Contract_G2_what_a_builder_throws_passes_unchanged_and_pins_nothing) {
  struct Own : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  Constant constant(5);
  const TargetGuard guard("breaker");
  bool broken = true;
  register_target_builder("breaker", "TestScaleFwdOp", [&](const BuildRequest& request) {
    if (broken) throw Own("no such shape");
    return constant.builder()(request);
  });
  const ScaleOp op(2, "t", {.target = "breaker"});
  EXPECT_THROW(op(iota(1, 2)), Own);
  EXPECT_EQ(op.serving_target(), std::nullopt);
  broken = false;
  EXPECT_EQ(op(iota(1, 2)).at({0, 0}), 5);
}

TEST(ContractG, Contract_G2_a_result_that_cannot_be_called_is_not_available) {
  const TargetGuard guard("idle");
  register_target_builder("idle", "TestScaleFwdOp", [](const BuildRequest&) { return nullptr; });
  register_target_builder("idle", "TestTwinFwdOp",
                          [](const BuildRequest&) { return make_target_kernel(nullptr); });
  const ScaleOp op(2, "t", {.target = "idle"});
  EXPECT_EQ(kind_of([&] { op(iota(1, 2)); }), ErrorKind::kOpNotAvailable);
  EXPECT_THAT(
      error_of([&] { op(iota(1, 2)); }),
      HasSubstr("TestScaleFwdOp: the builder of target idle returned nothing that can be called"));
  const TwinOp twin(2, "t", {.target = "idle"});
  EXPECT_EQ(kind_of([&] { twin(iota(1, 2)); }), ErrorKind::kOpNotAvailable)
      << "an empty function neither";
}

// G3, G4 --------------------------------------------------------------------------------------

TEST(ContractG, Contract_G3_a_composite_without_kernels_runs_its_own_composition) {
  const TargetGuard guard("partial");
  Constant constant(5);
  register_target_builder("partial", "TestScaleFwdOp", constant.builder());
  const ChainOp chain(2, "t", nullptr, nullptr, {.target = "partial"});
  EXPECT_EQ(chain(iota(1, 1)).at({0, 0}), 5);
  EXPECT_EQ(constant.runs, 2);
}

TEST(ContractG, Contract_G3_an_op_with_kernels_of_its_own_has_no_fall_back) {
  const TargetGuard guard("partial");
  Constant constant(5);
  register_target_builder("partial", "TestScaleFwdOp", constant.builder());
  const MixOp mix({.target = "partial"});
  EXPECT_EQ(kind_of([&] { mix(iota(1, 1)); }), ErrorKind::kOpNotAvailable);
  EXPECT_THAT(
      error_of([&] { mix(iota(1, 1)); }),
      HasSubstr(
          "TestMixFwdOp: target partial registered no builder for it, and the op's own kernels "
          "serve target builtin only; ask for target builtin or register a builder"));
  EXPECT_EQ(mix.serving_target(), std::nullopt);
  EXPECT_EQ(constant.runs, 0);
  const TwinOp leaf(2, "t", {.target = "partial"});
  EXPECT_EQ(kind_of([&] { leaf(iota(1, 1)); }), ErrorKind::kOpNotAvailable)
      << "a leaf has no composition";
}

TEST(ContractG, Contract_G4_each_sub_op_selects_for_itself) {
  const TargetGuard guard("given");
  Constant constant(5);
  register_target_builder("given", "TestScaleFwdOp", constant.builder());
  const auto given = std::make_shared<ScaleOp>(2, "g", OpOptions{.target = "given"});
  const ChainOp chain(3, "t", nullptr, given, {.target = "builtin"});
  EXPECT_EQ(chain(iota(1, 1)).at({0, 0}), 5);
  EXPECT_EQ(chain.held_delegates()[0].op->serving_target(), "builtin");
  EXPECT_EQ(given->serving_target(), "given");
}

}  // namespace
}  // namespace tileops::contract
