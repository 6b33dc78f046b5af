// SPDX-License-Identifier: Apache-2.0
// E: when a sub-op is built.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "contract/contract_ops.h"

namespace tileops::contract {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> identities(const Op& op) {
  std::vector<std::string> texts;
  for (const HeldDelegate& held : op.held_delegates()) texts.push_back(to_string(held.identity));
  return texts;
}

TEST(ContractE, Contract_E1_arguments_settled_at_construction_are_held_before_any_call) {
  reset_counts();
  const ChainOp chain(2, "t");
  EXPECT_EQ(chain.held_delegates().size(), 2u);
  EXPECT_EQ(count_of(Point::kConstruct, "t.first"), 1);
  chain(iota(2, 3));
  EXPECT_EQ(count_of(Point::kConstruct, "t.first"), 1) << "a call builds no further one";
}

TEST(ContractE, Contract_E1_a_composite_whose_sub_op_cannot_be_built_is_not_constructed) {
  const HookGuard hook([](Point point, const std::string& tag) -> bool {
    if (point == Point::kConstruct && tag == "t.second") throw std::runtime_error("no second");
    return false;
  });
  EXPECT_THROW(ChainOp(2, "t"), std::runtime_error);
}

TEST(ContractE, Contract_E2_one_instance_serves_several_identities) {
  reset_counts();
  const WidthOp op("w");
  EXPECT_TRUE(op.held_delegates().empty());
  EXPECT_EQ(values_of(op(iota(1, 2))), (std::vector<double>{2, 4}));
  EXPECT_EQ(values_of(op(iota(1, 3))), (std::vector<double>{3, 6, 9}));
  EXPECT_EQ(values_of(op(iota(2, 2))), (std::vector<double>{2, 4, 6, 8}));
  EXPECT_THAT(identities(op), ElementsAre("2", "3"));
  EXPECT_EQ(count_of(Point::kConstruct, "w.2"), 1);
  EXPECT_EQ(count_of(Point::kConstruct, "w.3"), 1);
}

TEST(ContractE, Contract_E2_each_call_is_filed_with_the_sub_op_of_its_identity) {
  const WidthOp op("w");
  op(iota(1, 2));
  op(iota(1, 3));
  ASSERT_EQ(op.last_call()->stages("by_width").size(), 1u);
  EXPECT_EQ(op.last_call()->stages("by_width")[0]->value("factor"), Value(3.0));
}

TEST(ContractE, Contract_E3_a_failed_call_keeps_what_it_held) {
  const WidthOp op("w");
  {
    const HookGuard hook([](Point point, const std::string&) -> bool {
      if (point == Point::kKernel) throw std::runtime_error("kernel broke");
      return false;
    });
    EXPECT_THROW(op(iota(1, 2)), std::runtime_error);
  }
  ASSERT_THAT(identities(op), ElementsAre("2"));
  const std::shared_ptr<Op> held = op.held_delegates()[0].op;
  EXPECT_EQ(values_of(op(iota(1, 2))), (std::vector<double>{2, 4}));
  EXPECT_EQ(op.held_delegates()[0].op, held);
}

TEST(ContractE,
     Contract_E3_a_call_whose_sub_op_cannot_be_built_holds_nothing_and_the_next_call_builds_it) {
  const WidthOp op("w");
  {
    const HookGuard hook([](Point point, const std::string&) -> bool {
      if (point == Point::kConstruct) throw std::runtime_error("not now");
      return false;
    });
    EXPECT_THROW(op(iota(1, 2)), std::runtime_error);
    EXPECT_TRUE(op.held_delegates().empty());
  }
  EXPECT_EQ(values_of(op(iota(1, 2))), (std::vector<double>{2, 4}));
}

}  // namespace
}  // namespace tileops::contract
