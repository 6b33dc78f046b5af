// SPDX-License-Identifier: Apache-2.0
// B: delegate_for is the only way to hold a sub-op.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>
#include <thread>

#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"
#include "tileops/ops/moe/layout.h"

namespace tileops::contract {
namespace {

using ::testing::HasSubstr;

std::vector<const Op*> held_in_order(const Op& op) {
  std::vector<const Op*> ops;
  for (const HeldDelegate& held : op.held_delegates()) ops.push_back(held.op.get());
  return ops;
}

TEST(ContractB, Contract_B1_a_composite_holds_what_delegate_for_registered_and_nothing_else) {
  const FreeOp op;
  EXPECT_TRUE(op.held_delegates().empty());
  const auto a = op.hold("a", settled);
  ASSERT_EQ(op.held_delegates().size(), 1u);
  EXPECT_EQ(op.held_delegates()[0].op, a);
  EXPECT_EQ(op.held_delegates()[0].stage, "a");
  EXPECT_EQ(op.held_delegates()[0].identity, Value());
}

TEST(ContractB, Contract_B2_a_stage_and_identity_is_built_once) {
  reset_counts();
  const FreeOp op;
  const auto first = op.hold("a", 4);
  EXPECT_EQ(op.hold("a", 4), first);
  EXPECT_EQ(count_of(Point::kConstruct, "free.a"), 1);
}

TEST(ContractB, Contract_B2_another_given_is_not_held_and_is_warned_of_once) {
  const FreeOp op;
  const auto first = op.hold("a", settled);
  const Warnings warnings;
  const auto late = std::make_shared<ScaleOp>();
  EXPECT_EQ(op.hold("a", settled, late), first);
  EXPECT_EQ(op.hold("a", settled, late), first);
  ASSERT_EQ(warnings.seen().size(), 1u);
  EXPECT_THAT(warnings.seen()[0],
              HasSubstr("TestFreeFwdOp: (a, None) holds " + first->key() + " already; the " +
                        late->key() + " given now is not held"));
  EXPECT_EQ(op.hold("b", settled, late), late) << "what was not held may be held elsewhere";
}

TEST(ContractB, Contract_B2_the_given_that_is_held_already_is_no_reason_to_warn) {
  const FreeOp op;
  const auto given = std::make_shared<ScaleOp>();
  const Warnings warnings;
  EXPECT_EQ(op.hold("a", settled, given), given);
  EXPECT_EQ(op.hold("a", settled, given), given);
  EXPECT_TRUE(warnings.seen().empty());
}

TEST(ContractB, Contract_B2_parameters_do_not_change_after_construction) {
  const ScaleOp op(3);
  const Params before = op.params();
  op(iota(1, 2));
  EXPECT_EQ(op.params(), before);
  EXPECT_EQ(*op.params().at("factor").as_double(), 3.0);
}

TEST(ContractB, Contract_B3_any_value_is_an_identity_and_kinds_differ) {
  const FreeOp op;
  const std::vector<Value> identities = {settled,
                                         1,
                                         true,
                                         1.0,
                                         "1",
                                         DType::kF32,
                                         Value::List{1, "x"},
                                         Value::List{1, "y"},
                                         MGroupedLayout::contiguous().to_value(),
                                         MGroupedLayout::masked(4).to_value(),
                                         MGroupedLayout::masked(8).to_value()};
  std::vector<std::shared_ptr<Op>> built;
  for (const Value& identity : identities) built.push_back(op.hold("a", identity));
  ASSERT_EQ(op.held_delegates().size(), identities.size());
  for (size_t i = 0; i < identities.size(); ++i) {
    EXPECT_EQ(op.hold("a", identities[i]), built[i]) << to_string(identities[i]);
    EXPECT_EQ(op.held_delegates()[i].identity, identities[i]);
  }
  EXPECT_EQ(op.hold("a", MGroupedLayout::masked(4).to_value()), built[9])
      << "equal values are one identity";
}

TEST(ContractB, Contract_B4_two_identities_are_two_instances_in_build_order) {
  const FreeOp op;
  const auto b = op.hold("b", settled);
  const auto seven = op.hold("a", 7);
  const auto three = op.hold("a", 3);
  EXPECT_NE(seven, three);
  EXPECT_EQ(held_in_order(op), (std::vector<const Op*>{seven.get(), three.get(), b.get()}));
}

TEST(ContractB, Contract_B5_a_built_sub_op_inherits_the_target_at_every_depth) {
  const DeepOp deep("t", nullptr, {.target = "builtin"});
  const auto middle = deep.held_delegates()[0].op;
  const auto inner = middle->held_delegates()[0].op;
  const auto first = inner->held_delegates()[0].op;
  for (const auto& op : {middle, inner, first})
    EXPECT_EQ(op->options().target, "builtin") << op->name();
}

TEST(ContractB, Contract_B5_a_forced_configuration_is_not_inherited) {
  const MixOp mix({.implementation = "scale_plain", .kernel_config = {{"tile", 4}}});
  EXPECT_EQ(mix.held_delegates()[0].op->options().implementation, "scale_plain");
  EXPECT_EQ(mix.held_delegates()[0].op->options().kernel_config.size(), 0u);
}

TEST(ContractB, Contract_B5_a_forced_configuration_that_no_kernel_is_there_for_is_an_error) {
  EXPECT_THAT(
      error_of([] {
        ChainOp(2, "t", nullptr, nullptr, {.kernel_config = {{"tile", 4}}});
      }),
      HasSubstr("kernel_config: the op has no kernels of its own, got tile=4; give it to the "
                "sub-op"));
}

TEST(ContractB, Contract_B6_a_given_sub_op_is_held_as_it_is_with_its_own_target) {
  const auto given = std::make_shared<ScaleOp>(9, "given", OpOptions{.target = "builtin"});
  const ChainOp chain(2, "t", given, nullptr, {});
  EXPECT_EQ(chain.held_delegates()[0].op, given);
  EXPECT_EQ(given->options().target, "builtin");
  EXPECT_EQ(chain.held_delegates()[1].op->options().target, "");
  EXPECT_EQ(values_of(chain(iota(1, 2))), (std::vector<double>{18, 36}));
}

TEST(ContractB, Contract_B6_a_derived_class_and_an_equal_signature_stand_in) {
  const FreeOp op;
  const auto derived = std::make_shared<DerivedScaleOp>();
  const auto twin = std::make_shared<TwinOp>();
  EXPECT_EQ(op.hold("a", "derived", derived), derived);
  EXPECT_EQ(op.hold("a", "twin", twin), twin);
}

TEST(ContractB, Contract_B6_a_sub_op_of_an_equal_signature_is_called_as_the_stages_class) {
  const ChainOp chain(2, "t", std::make_shared<TwinOp>(), nullptr);
  EXPECT_EQ(values_of(chain(iota(1, 2))), (std::vector<double>{202, 204}));
  EXPECT_EQ(chain.last_call()->stages("first")[0]->op(), "TestTwinFwdOp");
}

TEST(ContractB, Contract_B6_another_class_is_an_error_that_names_both) {
  const FreeOp op;
  const auto hold = [&] { op.hold("a", settled, std::make_shared<ShiftOp>()); };
  EXPECT_EQ(kind_of(hold), ErrorKind::kDelegate);
  EXPECT_EQ(
      error_of(hold),
      "RuntimeError: TestFreeFwdOp: stage a holds TestScaleFwdOp, and was given TestShiftFwdOp, "
      "whose class and signature both differ");
  EXPECT_TRUE(op.held_delegates().empty());
  EXPECT_NE(op.hold("a", settled), nullptr) << "the stage is as it was";
}

TEST(ContractB, Contract_B7_in_tuned_mode_what_is_held_newly_is_asked_to_tune) {
  const FreeOp op;
  op.request_tune();
  const auto given = std::make_shared<ScaleOp>();
  EXPECT_FALSE(given->tuned());
  op.hold("a", settled, given);
  EXPECT_TRUE(given->tuned());
  EXPECT_TRUE(op.hold("b", settled)->tuned());
}

TEST(ContractB, Contract_B7_a_given_sub_op_with_kernels_tunes_them_when_it_is_held) {
  const auto given = std::make_shared<ScaleOp>();
  (*given)(iota(1, 2));
  const FreeOp op;
  op.request_tune();
  op.hold("a", settled, given);
  EXPECT_EQ(given->kernel_config()[0].values, (Params{{"tile", 8}}));
}

TEST(ContractB, Contract_B8_one_instance_has_one_stage_and_identity) {
  const FreeOp op;
  const auto given = std::make_shared<ScaleOp>();
  op.hold("a", 1, given);
  for (const auto& [stage, identity, text] :
       std::vector<std::tuple<std::string, Value, std::string>>{{"a", 2, "(a, 2)"},
                                                                {"b", 1, "(b, 1)"}}) {
    const auto again = [&, &stage = stage, &identity = identity] {
      op.hold(stage, identity, given);
    };
    EXPECT_EQ(kind_of(again), ErrorKind::kDelegate);
    EXPECT_EQ(error_of(again), "RuntimeError: TestFreeFwdOp: the TestScaleFwdOp offered as " +
                                   text + " is held already as (a, 1); hold another instance");
  }
  ASSERT_EQ(op.held_delegates().size(), 1u);
  EXPECT_EQ(op.held_delegates()[0].op, given);
  EXPECT_EQ(op.held_delegates()[0].identity, Value(1));
  EXPECT_NE(op.hold("a", 2), given) << "(a, 2) is free still";
}

TEST(ContractB,
     Contract_B9_a_sub_op_whose_construction_throws_is_not_held_and_is_built_at_the_next_ask) {
  const FreeOp op;
  {
    const HookGuard hook([](Point point, const std::string&) -> bool {
      if (point == Point::kConstruct) throw std::runtime_error("no memory of it");
      return false;
    });
    EXPECT_THROW(op.hold("a", settled), std::runtime_error);
    EXPECT_TRUE(op.held_delegates().empty());
  }
  const auto built = op.hold("a", settled);
  EXPECT_EQ(held_in_order(op), std::vector<const Op*>{built.get()});
}

TEST(ContractB, Contract_B9_a_nested_construction_that_throws_leaves_nothing) {
  reset_counts();
  const HookGuard hook([](Point point, const std::string& tag) -> bool {
    if (point == Point::kConstruct && tag == "free.c.second") throw std::runtime_error("stop");
    return false;
  });
  const FreeOp op;
  EXPECT_THROW(op.hold("c", settled), std::runtime_error);
  EXPECT_TRUE(op.held_delegates().empty());
}

TEST(ContractB, Contract_B10_holding_oneself_is_an_error) {
  const auto op = std::make_shared<FreeOp>();
  const auto hold = [&] { op->hold("a", settled, op); };
  EXPECT_EQ(kind_of(hold), ErrorKind::kDelegate);
  EXPECT_EQ(error_of(hold), "RuntimeError: TestFreeFwdOp: it cannot hold itself (stage a)");
  EXPECT_TRUE(op->held_delegates().empty());
}

TEST(ContractB, Contract_B10_closing_a_circle_is_an_error_at_any_length) {
  const auto a = std::make_shared<FreeOp>();
  const auto b = std::make_shared<FreeOp>();
  const auto c = std::make_shared<FreeOp>();
  a->hold("a", settled, b);
  b->hold("a", settled, c);
  for (const auto& last : {b, c}) {
    const auto close = [&] { last->hold("b", settled, a); };
    EXPECT_EQ(kind_of(close), ErrorKind::kDelegate);
    EXPECT_THAT(error_of(close), HasSubstr("would close a circle: it holds this op already"));
  }
  EXPECT_EQ(c->held_delegates().size(), 0u);
  EXPECT_EQ(b->held_delegates().size(), 1u);
}

TEST(ContractB, Contract_B10_two_threads_cannot_close_a_circle_together) {
  for (int round = 0; round < 50; ++round) {
    const auto a = std::make_shared<FreeOp>();
    const auto b = std::make_shared<FreeOp>();
    std::latch start(2);
    std::atomic<int> held{0};
    const auto hold = [&](const std::shared_ptr<FreeOp>& holder,
                          const std::shared_ptr<FreeOp>& given) {
      start.arrive_and_wait();
      try {
        holder->hold("a", settled, given);
        ++held;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kDelegate);
      }
    };
    std::thread other(hold, a, b);
    hold(b, a);
    other.join();
    EXPECT_EQ(held, 1);
  }
}

TEST(ContractB, Contract_B11_threads_that_ask_together_get_one_instance) {
  for (int round = 0; round < 20; ++round) {
    reset_counts();
    const FreeOp op;
    constexpr int kThreads = 8;
    std::latch start(kThreads);
    std::vector<std::shared_ptr<Op>> got(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        got[static_cast<size_t>(i)] = op.hold("a", settled);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& each : got) EXPECT_EQ(each, got[0]);
    EXPECT_EQ(count_of(Point::kConstruct, "free.a"), 1);
    EXPECT_EQ(op.held_delegates().size(), 1u);
  }
}

TEST(ContractB, Contract_B11_a_build_that_asks_for_itself_is_an_error_not_a_hang) {
  const FreeOp op;
  EXPECT_THAT(error_of([&] { op.hold_made("a", settled, [&] { return op.hold("a", settled); }); }),
              HasSubstr("asked for the very thing that it is building"));
  EXPECT_NE(op.hold("a", settled), nullptr);
}

TEST(ContractB, Contract_B12_an_injected_sub_op_outlives_its_composite) {
  const auto given = std::make_shared<ScaleOp>(4);
  {
    const ChainOp chain(2, "t", given, nullptr);
    chain(iota(1, 2));
    EXPECT_GT(given.use_count(), 1) << "the composite owns it too";
  }
  EXPECT_EQ(given.use_count(), 1);
  EXPECT_EQ(values_of((*given)(iota(1, 2))), (std::vector<double>{4, 8}));
}

TEST(ContractB, Contract_B12_a_composite_keeps_what_the_caller_lets_go) {
  auto given = std::make_shared<ScaleOp>(4);
  const ChainOp chain(2, "t", std::move(given), nullptr);
  EXPECT_EQ(values_of(chain(iota(1, 2))), (std::vector<double>{8, 16}));
}

}  // namespace
}  // namespace tileops::contract
