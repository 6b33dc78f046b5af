// SPDX-License-Identifier: Apache-2.0
// I: how a kernel is chosen, built and kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"
#include "tileops/dispatch/kernel_registry.h"
#include "tileops/dispatch/selection.h"
#include "tileops/op/explain.h"
#include "tileops/op/trace.h"

namespace tileops::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const DeviceFacts kPlainCpu{.device = kCpuDevice, .name = "cpu"};
const DeviceFacts kHopper{
    .device = {DeviceType::kCUDA, 0}, .archs = {"sm_90", "sm_90a"}, .name = "H200"};

/// An implementation in a table of this test.
struct Entrant {
  ImplementationInfo info;
  Refusal refusal = std::nullopt;
};

class Selection {
 public:
  explicit Selection(std::vector<Entrant> entrants) : entrants_(std::move(entrants)) {
    for (const Entrant& entrant : entrants_) infos_.push_back(&entrant.info);
  }
  std::string winner(const DeviceFacts& facts = kPlainCpu, std::string forced = "") const {
    return entrants_[select_implementation(query(forced), facts)].info.key;
  }
  std::vector<std::string> reasons(const DeviceFacts& facts = kPlainCpu) const {
    std::vector<std::string> result;
    for (const Candidate& candidate : explain_selection(query(""), facts)) {
      result.push_back((candidate.chosen ? "-> " : "") + candidate.key + ": " + candidate.reason);
    }
    return result;
  }

 private:
  SelectionQuery query(std::string_view forced) const {
    return {"TestOp", "scale",
            infos_,   [this](size_t i) { return entrants_[i].refusal; },
            forced,   [] { return std::string("the call"); }};
  }
  std::vector<Entrant> entrants_;
  std::vector<const ImplementationInfo*> infos_;
};

// I1 ------------------------------------------------------------------------------------------

TEST(ContractI, Contract_I1_key_for_selects_without_building_for_a_device_that_is_not_there) {
  reset_counts();
  const ScaleOp op(2, "t");
  ScaleCall call = op.spec_of(iota(2, 4));
  EXPECT_EQ(op.key_for<Scale>(call, kPlainCpu), (EntryKey{"scale_fours", Value::List{2.0, "t"}}));
  call.device = {DeviceType::kCUDA, 0};
  EXPECT_EQ(op.key_for<Scale>(call, kHopper).implementation, "scale_far");
  EXPECT_TRUE(op.built_entries("scale").empty());
  EXPECT_EQ(count_of(Point::kEntryBuild, "t"), 0);
}

TEST(ContractI, Contract_I1_a_hit_asks_no_implementation_again) {
  int asked = 0;
  register_kernel_type<Scale>("TestScaleFwdOp",
                              scale_implementation({.key = "asked", .devices = {DeviceType::kCPU}},
                                                   [&](const ScaleCall&) -> Refusal {
                                                     ++asked;
                                                     return "never";
                                                   }));
  const ScaleOp op(2, "t");
  unregister_kernel_type("TestScaleFwdOp", "asked");
  op(iota(2, 3));
  EXPECT_EQ(asked, 1);
  op(iota(2, 3));
  EXPECT_EQ(asked, 1);
  op(iota(2, 5));
  EXPECT_EQ(asked, 2);
}

struct Unhashable {
  bool operator==(const Unhashable&) const = default;
  std::string to_string() const { return ""; }
};
struct Keyless {
  static constexpr std::string_view kName = "keyless";
  using Call = Unhashable;
  using Kernel = ScaleKernel;
};

TEST(ContractI, Contract_I1_a_call_spec_that_cannot_be_a_key_is_no_interface) {
  EXPECT_TRUE(KernelInterface<Scale>);
  EXPECT_FALSE(KernelInterface<Keyless>);
}

// I2 ------------------------------------------------------------------------------------------

TEST(ContractI, Contract_I2_what_cannot_run_on_the_device_is_dropped_before_precedence) {
  const Selection selection(
      {{{.key = "gpu", .devices = {DeviceType::kCUDA}, .preferred_over = {"cpu"}}},
       {{.key = "cpu", .devices = {DeviceType::kCPU}}}});
  EXPECT_EQ(selection.winner(), "cpu");
  EXPECT_EQ(selection.winner(kHopper), "gpu");
  EXPECT_THAT(selection.reasons(),
              ElementsAre("gpu: runs on cuda, the call is on cpu", "-> cpu: serves"));
}

TEST(ContractI, Contract_I2_an_arch_that_the_device_lacks_is_a_reason) {
  const Selection selection({{{.key = "amx",
                               .devices = {DeviceType::kCPU},
                               .archs = {"amx_bf16"},
                               .preferred_over = {"any"}}},
                             {{.key = "any", .devices = {DeviceType::kCPU}}}});
  EXPECT_EQ(selection.winner(), "any");
  EXPECT_EQ(selection.winner({.device = kCpuDevice, .archs = {"amx_bf16"}}), "amx");
  EXPECT_THAT(selection.reasons(),
              ElementsAre("amx: needs amx_bf16, cpu has none of them", "-> any: serves"));
}

TEST(ContractI, Contract_I2_a_refusal_is_dropped_before_precedence) {
  const Selection selection(
      {{{.key = "best", .devices = {DeviceType::kCPU}, .preferred_over = {"rest"}}, "odd N"},
       {{.key = "rest", .devices = {DeviceType::kCPU}}}});
  EXPECT_EQ(selection.winner(), "rest");
  EXPECT_THAT(selection.reasons(), ElementsAre("best: odd N", "-> rest: serves"));
}

TEST(ContractI, Contract_I2_general_is_below_every_other) {
  const Selection selection({{{.key = "general", .devices = {DeviceType::kCPU}, .general = true}},
                             {{.key = "special", .devices = {DeviceType::kCPU}}}});
  EXPECT_EQ(selection.winner(), "special");
  EXPECT_THAT(selection.reasons(),
              ElementsAre("general: special is preferred", "-> special: serves"));
}

TEST(ContractI, Contract_I2_preference_is_transitive_also_over_what_cannot_serve) {
  const Selection selection(
      {{{.key = "a", .devices = {DeviceType::kCPU}, .preferred_over = {"b"}}},
       {{.key = "b", .devices = {DeviceType::kCPU}, .preferred_over = {"c"}}, "refuses"},
       {{.key = "c", .devices = {DeviceType::kCPU}}}});
  EXPECT_EQ(selection.winner(), "a");
}

TEST(ContractI, Contract_I2_the_order_of_the_table_decides_nothing) {
  for (const bool reversed : {false, true}) {
    std::vector<Entrant> entrants{
        {{.key = "a", .devices = {DeviceType::kCPU}, .preferred_over = {"b"}}},
        {{.key = "b", .devices = {DeviceType::kCPU}}}};
    if (reversed) std::swap(entrants[0], entrants[1]);
    EXPECT_EQ(Selection(entrants).winner(), "a");
  }
}

TEST(ContractI, Contract_I2_none_left_is_not_available_and_lists_each_with_its_reason) {
  const Selection selection({{{.key = "gpu", .devices = {DeviceType::kCUDA}}},
                             {{.key = "picky", .devices = {DeviceType::kCPU}}, "N must be even"}});
  EXPECT_EQ(kind_of([&] { selection.winner(); }), ErrorKind::kOpNotAvailable);
  EXPECT_EQ(error_of([&] { selection.winner(); }),
            "OpNotAvailableError: TestOp: no implementation of scale serves the call on cpu; "
            "candidates: gpu "
            "(runs on cuda, the call is on cpu); picky (N must be even)");
  EXPECT_THAT(error_of([] { Selection({}).winner(); }),
              HasSubstr("candidates: it has no implementation"));
}

TEST(ContractI, Contract_I2_several_left_is_a_fault_of_the_table) {
  const Selection selection({{{.key = "a", .devices = {DeviceType::kCPU}}},
                             {{.key = "b", .devices = {DeviceType::kCPU}}},
                             {{.key = "c", .devices = {DeviceType::kCPU}}, "refuses"}});
  EXPECT_EQ(kind_of([&] { selection.winner(); }), ErrorKind::kAmbiguousSelection);
  EXPECT_EQ(
      error_of([&] { selection.winner(); }),
      "AmbiguousSelectionError: TestOp: several implementations of scale serve the call on cpu and "
      "no "
      "preference decides; candidates: a (would serve); b (would serve); c (refuses); declare "
      "preferred_over");
  EXPECT_THAT(selection.reasons()[0], HasSubstr("no preference decides"));
}

TEST(ContractI, Contract_I2_a_forced_choice_is_honoured_or_refused) {
  const Selection selection(
      {{{.key = "best", .devices = {DeviceType::kCPU}, .preferred_over = {"rest"}}},
       {{.key = "rest", .devices = {DeviceType::kCPU}}},
       {{.key = "gpu", .devices = {DeviceType::kCUDA}}}});
  EXPECT_EQ(selection.winner(kPlainCpu, "rest"), "rest");
  EXPECT_EQ(kind_of([&] { selection.winner(kPlainCpu, "gpu"); }), ErrorKind::kOpNotAvailable);
  EXPECT_THAT(error_of([&] { selection.winner(kPlainCpu, "none"); }),
              HasSubstr("scale has no implementation none to force"));
  const ChainOp chain(2, "t", nullptr, nullptr, {.implementation = "scale_plain"});
  chain(iota(2, 4));
  EXPECT_EQ(chain.last_call()->stages("first")[0]->kernels()[0].entry->implementation,
            "scale_plain");
}

TEST(ContractI, Contract_I2_a_call_that_nobody_serves_names_the_op_and_the_call) {
  const ScaleOp op(2, "t", {.implementation = "scale_fours"});
  EXPECT_THAT(error_of([&] { op(iota(2, 3)); }),
              HasSubstr("OpNotAvailableError: TestScaleFwdOp: no implementation of scale serves M "
                        "2, N 3 on cpu"));
  EXPECT_THAT(error_of([&] { op(iota(2, 3)); }),
              HasSubstr("scale_fours (N must be a multiple of 4)"));
  EXPECT_NO_THROW(op(iota(2, 4)));
}

// I3 ------------------------------------------------------------------------------------------

TEST(ContractI, Contract_I3_calls_that_share_a_build_identity_share_an_entry) {
  reset_counts();
  const ScaleOp op(2, "t");
  op(iota(2, 3));
  op(iota(5, 7));
  EXPECT_EQ(count_of(Point::kEntryBuild, "t"), 1);
  EXPECT_EQ(op.built_entries("scale").size(), 1u);
  op(iota(2, 4));
  EXPECT_EQ(op.built_entries("scale").size(), 2u) << "the same identity of another implementation";
}

TEST(ContractI, Contract_I3_a_builder_that_throws_is_asked_again) {
  reset_counts();
  const ScaleOp op(2, "t");
  {
    const HookGuard hook([](Point point, const std::string&) -> bool {
      if (point == Point::kEntryBuild) throw std::runtime_error("compiler broke");
      return false;
    });
    EXPECT_THROW(op(iota(2, 3)), std::runtime_error);
    EXPECT_TRUE(op.built_entries("scale").empty());
  }
  EXPECT_NO_THROW(op(iota(2, 3)));
  EXPECT_EQ(count_of(Point::kEntryBuild, "t"), 2);
}

TEST(ContractI, Contract_I3_a_forced_configuration_is_honoured_or_refused) {
  const ScaleOp honoured(2, "t", {.kernel_config = {{"tile", 1}}});
  EXPECT_EQ(values_of(honoured(iota(1, 2))), values_of(ScaleOp(2, "t")(iota(1, 2))));
  const ScaleOp refused(2, "t", {.kernel_config = {{"tile", 4}}});
  EXPECT_THAT(error_of([&] { refused(iota(1, 2)); }),
              HasSubstr("TestScaleFwdOp: kernel_config: scale_plain would run with tile=1, got "
                        "tile=4"));
  EXPECT_EQ(kind_of([&] { refused(iota(1, 2)); }), ErrorKind::kValue);
  EXPECT_TRUE(refused.built_entries("scale").empty());
  const MixOp plain({.kernel_config = {{"tile", 4}}});
  EXPECT_THAT(error_of([&] { plain(iota(1, 2)); }), HasSubstr("has nothing to configure, got"));
}

// I4 ------------------------------------------------------------------------------------------

AnyImplementation entrant(ImplementationInfo info) {
  return erase(scale_implementation(std::move(info), [](const ScaleCall&) { return Refusal(); }));
}

std::string table_error(std::vector<AnyImplementation> implementations,
                        std::vector<std::string> interfaces = {"scale"}) {
  return error_of([&] { check_table("TestOp", interfaces, implementations); });
}

TEST(ContractI, Contract_I4_each_fault_of_a_table_is_its_own_error) {
  const std::vector<DeviceType> cpu{DeviceType::kCPU};
  EXPECT_EQ(
      table_error({entrant({.key = "a", .devices = cpu})}, {"mix"}),
      "ValueError: TestOp: a implements scale, which the op does not declare; it declares mix");
  EXPECT_EQ(table_error({entrant({.key = "a", .devices = cpu, .general = true}),
                         entrant({.key = "b", .devices = cpu, .general = true})}),
            "ValueError: TestOp: a and b are both general for scale on cpu; one can be");
  EXPECT_EQ(table_error({entrant({.key = "a", .devices = cpu, .preferred_over = {"z"}})}),
            "ValueError: TestOp: a is preferred over z, which is no implementation of scale");
  EXPECT_EQ(table_error({entrant({.key = "a", .devices = cpu, .preferred_over = {"b"}}),
                         entrant({.key = "b", .devices = cpu, .preferred_over = {"a"}})}),
            "ValueError: TestOp: the preferences of a form a circle");
  EXPECT_EQ(
      table_error({entrant(
          {.key = "a", .devices = {DeviceType::kCPU, DeviceType::kCUDA}, .archs = {"sm_90a"}})}),
      "ValueError: TestOp: a names archs (sm_90a) with 2 device types (cpu, cuda); archs go with "
      "exactly one");
  EXPECT_EQ(
      table_error({entrant({.key = "a", .devices = cpu}), entrant({.key = "a", .devices = cpu})}),
      "ValueError: TestOp: the key a is taken; choose another");
  EXPECT_EQ(table_error({entrant({.key = "a"})}), "ValueError: TestOp: a names no device type");
  EXPECT_THAT(table_error({entrant({.key = "", .devices = cpu})}), HasSubstr("has no key"));
}

TEST(ContractI, Contract_I4_general_ones_of_different_devices_and_a_chain_are_no_fault) {
  EXPECT_EQ(
      table_error({entrant({.key = "a", .devices = {DeviceType::kCPU}, .general = true}),
                   entrant({.key = "b", .devices = {DeviceType::kCUDA}, .general = true}),
                   entrant({.key = "c", .devices = {DeviceType::kCPU}, .preferred_over = {"d"}}),
                   entrant({.key = "d", .devices = {DeviceType::kCPU}})}),
      "no error");
}

TEST(ContractI, Contract_I4_a_class_with_a_faulty_table_is_not_declared) {
  EXPECT_THAT(
      error_of([] {
        OpClass::declare({.name = "TestFaultyFwdOp",
                          .kernel_types = {entrant({.key = "a", .devices = {DeviceType::kCPU}})}});
      }),
      HasSubstr("TestFaultyFwdOp: a implements scale, which the op does not declare"));
  EXPECT_EQ(find_op_class("TestFaultyFwdOp"), nullptr);
}

// explain -------------------------------------------------------------------------------------

TEST(ContractI, Contract_I2_explain_says_for_each_stage_who_serves_and_why_not_the_others) {
  const ChainOp chain(2, "t");
  EXPECT_EQ(kind_of([&] { chain.explain(); }), ErrorKind::kState);
  chain(iota(2, 3));
  const Explanation explanation = chain.explain();
  EXPECT_EQ(explanation.target, "builtin");
  ASSERT_EQ(explanation.stages.size(), 2u);
  EXPECT_EQ(explanation.stages[0].stage, "first");
  const std::string text = explanation.text();
  EXPECT_THAT(text, HasSubstr("first = TestScaleFwdOp: target builtin"));
  EXPECT_THAT(text, HasSubstr("-> scale scale_plain: serves"));
  EXPECT_THAT(text, HasSubstr("scale scale_fours: N must be a multiple of 4"));
  EXPECT_THAT(text, HasSubstr("scale scale_far: runs on cuda, the call is on cpu"));
}

TEST(ContractI, Contract_I1_explain_runs_builds_and_records_nothing) {
  reset_counts();
  const ChainOp chain(2, "t");
  const Tensor inputs[] = {on_meta(iota(2, 4))};
  const Explanation explanation = explain_call(chain, {inputs, {}}, kPlainCpu);
  EXPECT_THAT(explanation.text(), HasSubstr("-> scale scale_fours: serves"));
  EXPECT_EQ(count_of(Point::kEntryBuild, "t.first"), 0);
  EXPECT_EQ(count_of(Point::kKernel, "t.first"), 0);
  EXPECT_EQ(kind_of([&] { chain.last_call(); }), ErrorKind::kState);
  EXPECT_EQ(chain.serving_target(), std::nullopt);
}

}  // namespace
}  // namespace tileops::contract
