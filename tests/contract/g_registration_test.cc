// SPDX-License-Identifier: Apache-2.0
// G5, G6: what backends register, refuse and undo. Loading them from libraries has a test of its own
// (backend_loading).
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

// G5 ------------------------------------------------------------------------------------------

TEST(ContractG, Contract_G5_an_added_implementation_competes_for_instances_constructed_later) {
  const ScaleOp before(2, "t");
  register_kernel_type<Scale>("TestScaleFwdOp",
                              scale_implementation({.key = "backend_fives",
                                                    .devices = {DeviceType::kCPU},
                                                    .preferred_over = {"scale_fours"}},
                                                   [](const ScaleCall& call) -> Refusal {
                                                     if (call.n % 5 == 0) return std::nullopt;
                                                     return "N must be a multiple of 5";
                                                   }));
  const ScaleOp after(2, "t");
  const auto served_by = [](const ScaleOp& op, int64_t n) {
    op(iota(1, n));
    return op.last_call()->kernels()[0].entry->implementation;
  };
  EXPECT_EQ(served_by(after, 5), "backend_fives");
  EXPECT_EQ(served_by(after, 20), "backend_fives") << "by its own precedence";
  EXPECT_EQ(served_by(after, 4), "scale_fours") << "by its own applicability";
  EXPECT_EQ(served_by(before, 5), "scale_plain")
      << "an instance keeps the table of its construction";
  unregister_kernel_type("TestScaleFwdOp", "backend_fives");
  EXPECT_EQ(served_by(ScaleOp(2, "t"), 5), "scale_plain");
  EXPECT_EQ(served_by(after, 10), "backend_fives");
}

TEST(ContractG, Contract_G5_a_malformed_registration_is_refused_when_it_is_made) {
  const auto implementation = [](ImplementationInfo info) {
    return scale_implementation(std::move(info), [](const ScaleCall&) { return Refusal(); });
  };
  const auto refused = [&](ImplementationInfo info) {
    return error_of(
        [&] { register_kernel_type<Scale>("TestScaleFwdOp", implementation(std::move(info))); });
  };
  EXPECT_THAT(refused({.key = "scale_fours", .devices = {DeviceType::kCPU}}),
              HasSubstr("ValueError: TestScaleFwdOp: the key scale_fours is taken"));
  EXPECT_THAT(
      refused({.key = "x", .devices = {DeviceType::kCPU}, .preferred_over = {"nobody"}}),
      HasSubstr("TestScaleFwdOp: x is preferred over nobody, which is no implementation of scale"));
  EXPECT_THAT(refused({.key = "x", .devices = {DeviceType::kCPU}, .general = true}),
              HasSubstr("both general"));
  EXPECT_THAT(error_of([&] {
                register_kernel_type<Scale>(
                    "NoSuchOp", implementation({.key = "x", .devices = {DeviceType::kCPU}}));
              }),
              HasSubstr("ValueError: NoSuchOp: no op class of that name is known"));
  EXPECT_THAT(error_of([] { unregister_kernel_type("TestScaleFwdOp", "scale_plain"); }),
              HasSubstr("no backend registered a kernel type scale_plain"));
  EXPECT_NO_THROW(ScaleOp()(iota(1, 2))) << "the table is as before";
}

/// Another type under the name of ScaleOp's interface.
struct FalseScale {
  static constexpr std::string_view kName = "scale";
  using Call = ScaleCall;
  using Kernel = MixKernel;
};

TEST(ContractG, Contract_G5_an_implementation_of_another_type_of_the_same_name_is_refused) {
  const Implementation<FalseScale> stranger{
      .info = {.key = "stranger", .devices = {DeviceType::kCPU}},
      .refusal = [](const ScaleCall&) { return Refusal(); },
      .entry_for = [](const ScaleCall&) -> EntryFor<FalseScale> {
        return {Value(), [](const BuildOptions&) { return std::make_shared<MixKernel>(); }};
      }};
  EXPECT_THAT(error_of([&] { register_kernel_type<FalseScale>("TestScaleFwdOp", stranger); }),
              HasSubstr("stranger implements another C++ type that is also named scale"));
  EXPECT_NO_THROW(ScaleOp()(iota(1, 2)));
}

// G6 ------------------------------------------------------------------------------------------

TEST(ContractG, Contract_G6_unknown_ops_taken_names_and_unknown_targets_are_errors_of_their_own) {
  const TargetGuard guard("mine");
  Constant constant(5);
  register_target_builder("mine", "TestScaleFwdOp", constant.builder());
  EXPECT_EQ(error_of([&] { register_target_builder("mine", "NoSuchOp", constant.builder()); }),
            "ValueError: target mine: cannot register a builder for NoSuchOp: no spec entry of "
            "that name");
  EXPECT_EQ(
      error_of([&] { register_target_builder("mine", "TestScaleFwdOp", constant.builder()); }),
      "ValueError: target mine: a builder for TestScaleFwdOp is registered already");
  EXPECT_EQ(
      error_of([&] { register_target_builder("builtin", "TestScaleFwdOp", constant.builder()); }),
      "ValueError: target name \"builtin\" cannot be registered; choose another");
  EXPECT_THAT(error_of([&] { register_target_builder("", "TestScaleFwdOp", constant.builder()); }),
              HasSubstr("cannot be registered"));
  EXPECT_THAT(error_of([&] { register_target_builder("mine", "TestShiftFwdOp", nullptr); }),
              HasSubstr("is empty"));
  register_target_detector("mine", [](Device) { return false; });
  EXPECT_THAT(error_of([&] { register_target_detector("mine", [](Device) { return false; }); }),
              HasSubstr("target mine: a detector is registered already"));
  EXPECT_THAT(
      error_of([] { set_default_target("nowhere"); }),
      HasSubstr(
          "ValueError: set_default_target: target nowhere is not known; known: builtin, mine"));
  EXPECT_EQ(default_target(), "");
  const ScaleOp op(2, "t", {.target = "nowhere"});
  EXPECT_THAT(error_of([&] { op(iota(1, 1)); }),
              HasSubstr("TestScaleFwdOp: target nowhere is not known"));
  EXPECT_EQ(op.serving_target(), std::nullopt);
}

TEST(ContractG, Contract_G6_a_throwing_detector_is_an_error_that_names_its_target) {
  const TargetGuard guard("nervous");
  bool broken = true;
  register_target_detector("nervous", [&](Device) -> bool {
    if (broken) throw std::runtime_error("no driver");
    return false;
  });
  const ScaleOp op;
  EXPECT_EQ(kind_of([&] { op(iota(1, 1)); }), ErrorKind::kBackend);
  EXPECT_EQ(error_of([&] { op(iota(1, 1)); }),
            "BackendError: the detector of target nervous threw for cpu: no driver");
  broken = false;
  EXPECT_NO_THROW(op(iota(1, 1)));
}

TEST(ContractG, Contract_G6_a_target_with_nothing_left_is_not_known_and_no_default) {
  Constant constant(5);
  register_target_builder("mine", "TestScaleFwdOp", constant.builder());
  EXPECT_THAT(target_names(), ElementsAre("mine"));
  set_default_target("mine");
  unregister_target_builder("mine", "TestScaleFwdOp");
  EXPECT_THAT(target_names(), ElementsAre());
  EXPECT_EQ(default_target(), "");
  EXPECT_THAT(error_of([] { unregister_target("mine"); }), HasSubstr("target mine is not known"));
  EXPECT_THAT(error_of([] { unregister_target_builder("mine", "TestScaleFwdOp"); }),
              HasSubstr("is registered"));
  EXPECT_THAT(error_of([] { unregister_target_detector("mine"); }),
              HasSubstr("no detector is registered"));
}

TEST(ContractG, Contract_G6_a_linked_backend_that_fails_midway_registers_nothing) {
  static Constant constant(5);
  const auto register_then_throw = [](BackendRegistrar& registrar) {
    registrar.target_builder("half", "TestScaleFwdOp", constant.builder());
    registrar.target_detector("half", [](Device) { return true; });
    registrar.kernel_type(
        "TestScaleFwdOp",
        erase(scale_implementation({.key = "half_scale", .devices = {DeviceType::kCPU}},
                                   [](const ScaleCall&) { return Refusal(); })));
    throw std::runtime_error("half way");
  };
  EXPECT_THROW(register_backend("half", register_then_throw), std::runtime_error);
  EXPECT_THAT(target_names(), ElementsAre());
  EXPECT_EQ(kernel_table("TestScaleFwdOp")->implementations.size(), 3u);
  EXPECT_NO_THROW(ScaleOp()(iota(1, 1)));
  EXPECT_EQ(kind_of([] { register_backend("none", nullptr); }), ErrorKind::kBackend);
}

TEST(ContractG, Contract_G6_an_interrupt_in_a_linked_backend_is_undone_and_reaches_the_caller) {
  struct Interrupt {};
  static Constant constant(5);
  EXPECT_THROW(register_backend("stopped",
                                [](BackendRegistrar& registrar) {
                                  registrar.target_builder("stopped", "TestScaleFwdOp",
                                                           constant.builder());
                                  throw Interrupt();
                                }),
               Interrupt);
  EXPECT_THAT(target_names(), ElementsAre());
}

TEST(ContractG, Contract_G6_an_undo_that_finds_its_registration_gone_undoes_the_rest) {
  static Constant constant(5);
  EXPECT_THROW(register_backend("untidy",
                                [](BackendRegistrar& registrar) {
                                  registrar.target_detector("tidy", [](Device) { return true; });
                                  registrar.target_builder("untidy", "TestScaleFwdOp",
                                                           constant.builder());
                                  unregister_target("untidy");
                                  throw std::runtime_error("after its own clean-up");
                                }),
               std::runtime_error);
  EXPECT_THAT(target_names(), ElementsAre());
}

}  // namespace
}  // namespace tileops::contract
