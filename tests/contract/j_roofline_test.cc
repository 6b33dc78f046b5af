// SPDX-License-Identifier: Apache-2.0
// J: what a call costs by the spec's formula.
#include <gtest/gtest.h>

#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"

namespace tileops::contract {
namespace {

Tensor rows_of(std::vector<double> rows) {
  return Tensor::from_values({1, static_cast<int64_t>(rows.size())}, DType::kI32, rows);
}

TEST(ContractJ, Contract_J1_the_last_call_is_priced) {
  const ScaleOp op;
  EXPECT_EQ(kind_of([&] { op.eval_roofline(); }), ErrorKind::kState);
  op(iota(2, 3));
  EXPECT_EQ(op.eval_roofline(), (spec::Cost{.flops = 6, .bytes = 48}));
  op(iota(4, 3, DType::kF64));
  EXPECT_EQ(op.eval_roofline(), (spec::Cost{.flops = 12, .bytes = 192}));
}

TEST(ContractJ, Contract_J1_a_failed_call_changes_no_price) {
  const ScaleOp op;
  op(iota(2, 3));
  EXPECT_NE(kind_of([&] { op(iota(2, 3).select(0, 0)); }), std::nullopt);
  EXPECT_EQ(op.eval_roofline().flops, 6);
}

TEST(ContractJ, Contract_J1_data_dependent_terms_are_read_from_metadata_lazily) {
  const CountOp op;
  const Tensor rows = rows_of({1, 1, 3});
  op(iota(4, 3), rows);
  EXPECT_EQ(op.eval_roofline().flops, 2 * 3) << "two distinct rows";
  store_element(DType::kI32, rows.data(), 0);
  EXPECT_EQ(op.eval_roofline().flops, 3 * 3) << "the contents are read when the price is asked";
}

TEST(ContractJ, Contract_J1_a_composite_prices_what_its_staged_records_say) {
  const DeepOp deep("deep");
  deep(iota(2, 3));
  EXPECT_EQ(deep.eval_roofline().flops, 4 * 6);
  EXPECT_EQ(deep.eval_roofline().bytes, 48) << "intermediates are never counted";
}

TEST(ContractJ, Contract_J1_every_call_of_a_stage_counts) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    const auto a = self.hold("a", settled);
    ScaleOp::invoke(*a, call.input(0));
    return ScaleOp::invoke(*a, call.input(0));
  });
  op(iota(2, 3));
  EXPECT_EQ(op.eval_roofline().flops, 4) << "the formula sums index M over the staged calls";
}

TEST(ContractJ, Contract_J1_a_stage_that_ran_nothing_is_bounded_by_the_formula) {
  const DeepOp deep("deep");
  deep(on_meta(iota(2, 3)));
  EXPECT_EQ(deep.eval_roofline().flops, 4 * 6);
}

}  // namespace
}  // namespace tileops::contract
