// SPDX-License-Identifier: Apache-2.0
// D2 to D9: what a call's record says, and calls on several threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"

namespace tileops::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Tensor scale(const std::shared_ptr<Op>& op, const Tensor& x) { return ScaleOp::invoke(*op, x); }

// D2 to D5 ------------------------------------------------------------------------------------

TEST(ContractD, Contract_D2_calls_are_filed_under_their_stage_in_completion_order) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    const auto a = self.hold("a", settled);
    const auto b = self.hold("b", settled);
    Tensor x = scale(a, call.input(0));
    x = scale(b, x);
    return scale(a, x);
  });
  op(iota(1, 2));
  const RecordPtr record = op.last_call();
  EXPECT_THAT(record->stage_names(), ElementsAre("a", "b", "c"));
  ASSERT_EQ(record->stages("a").size(), 2u) << "a sub-op called twice is two records";
  EXPECT_NE(record->stages("a")[0], record->stages("a")[1]);
  EXPECT_EQ(record->stages("b").size(), 1u);
  EXPECT_THAT(record->stages("c"), IsEmpty()) << "a declared stage that ran nothing";
  EXPECT_EQ(record->stages("a")[1], op.held_delegates()[0].op->last_call());
  EXPECT_EQ(error_of([&] { record->stages("d"); }),
            "RuntimeError: TestFreeFwdOp: no stage d; declared: a, b, c");
}

TEST(ContractD, Contract_D2_two_instances_of_a_stage_share_its_list_in_completion_order) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    const auto late = self.hold("a", "late");
    const auto early = self.hold("a", "early");
    const Tensor x = scale(early, call.input(0));
    return scale(late, x);
  });
  op(iota(1, 2));
  const auto staged = op.last_call()->stages("a");
  ASSERT_EQ(staged.size(), 2u);
  EXPECT_EQ(staged[0], op.hold("a", "early")->last_call());
  EXPECT_EQ(staged[1], op.hold("a", "late")->last_call());
}

TEST(ContractD, Contract_D2_a_call_outside_any_call_is_filed_nowhere) {
  const ChainOp chain(2, "t");
  chain(iota(1, 2));
  const RecordPtr before = chain.last_call();
  scale(chain.held_delegates()[0].op, iota(1, 2));
  EXPECT_EQ(chain.last_call(), before);
  EXPECT_EQ(before->stages("first").size(), 1u);
}

TEST(ContractD, Contract_D3_a_sub_op_that_is_not_held_fails_the_parents_call) {
  const ScaleOp stranger;
  bool stray = true;
  const FreeOp op([&](const FreeOp& self, Call& call) {
    if (stray) stranger(call.input(0));
    return scale(self.hold("a", settled), call.input(0));
  });
  const auto call = [&] { op(iota(1, 2)); };
  EXPECT_EQ(kind_of(call), ErrorKind::kDelegate);
  EXPECT_EQ(
      error_of(call),
      "RuntimeError: TestFreeFwdOp: it called TestScaleFwdOp, which it does not hold; hold sub-ops "
      "through delegate_for, so that their calls are filed under a stage");
  EXPECT_EQ(kind_of([&] { op.last_call(); }), ErrorKind::kState);
  EXPECT_NE(stranger.last_call(), nullptr) << "its own call completed";
  stray = false;
  call();
  EXPECT_EQ(op.last_call()->stages("a").size(), 1u);
}

TEST(ContractD, Contract_D3_what_a_held_sub_op_holds_is_not_held_by_the_parent) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    return scale(self.hold("c", settled)->held_delegates()[0].op, call.input(0));
  });
  EXPECT_THAT(error_of([&] { op(iota(1, 2)); }),
              HasSubstr("it called TestScaleFwdOp, which it does not hold"));
}

TEST(ContractD, Contract_D4_a_failed_sub_op_call_is_in_no_stages_and_the_parent_can_complete) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    const auto a = self.hold("a", settled);
    EXPECT_EQ(kind_of([&] { scale(a, call.input(0).select(0, 0)); }), ErrorKind::kShape);
    return scale(self.hold("b", settled), call.input(0));
  });
  op(iota(1, 2));
  EXPECT_THAT(op.last_call()->stages("a"), IsEmpty());
  EXPECT_EQ(op.last_call()->stages("b").size(), 1u) << "the failed call left the stack";
}

TEST(ContractD, Contract_D4_an_unheld_sub_op_whose_call_fails_is_no_fault_of_the_parent) {
  const ScaleOp stranger;
  const FreeOp op([&](const FreeOp& self, Call& call) {
    EXPECT_NE(kind_of([&] { stranger(call.input(0).select(0, 0)); }), std::nullopt);
    return scale(self.hold("a", settled), call.input(0));
  });
  EXPECT_NO_THROW(op(iota(1, 2)));
}

TEST(ContractD, Contract_D5_a_nested_composites_calls_are_in_its_own_record) {
  const DeepOp deep("deep");
  deep(iota(1, 2));
  const RecordPtr record = deep.last_call();
  EXPECT_THAT(record->stage_names(), ElementsAre("middle", "tail"));
  const RecordPtr nest = record->stages("middle").at(0);
  EXPECT_EQ(nest->op(), "TestNestFwdOp");
  const RecordPtr chain = nest->stages("inner").at(0);
  EXPECT_EQ(chain->stages("first").at(0)->op(), "TestScaleFwdOp");
  EXPECT_THAT(chain->stages("first").at(0)->stage_names(), IsEmpty());
}

// D6 ------------------------------------------------------------------------------------------

TEST(ContractD, Contract_D6_a_record_holds_the_facts_of_its_call) {
  const EffectsOp op(false, true);
  const Tensor x = iota(2, 3);
  const Tensor out = Tensor::empty({2, 3}, DType::kF32);
  op(x, out);
  const RecordPtr record = op.last_call();
  EXPECT_EQ(record->op(), "TestEffectsFwdOp");
  EXPECT_EQ(record->index("M"), 2);
  EXPECT_EQ(record->index("N"), 3);
  EXPECT_EQ(record->value("T"), Value(DType::kF32));
  EXPECT_EQ(record->value("in_place"), Value(false));
  EXPECT_EQ(record->device(), kCpuDevice);
  EXPECT_EQ(record->effect_branch(), "out");
  EXPECT_EQ(record->tensor("x").shape, (Shape{2, 3}));
  EXPECT_EQ(record->tensor("sums").shape, Shape{2});
  EXPECT_EQ(record->traffic().read_bytes, 24);
  EXPECT_EQ(record->traffic().written_bytes, 24 + 8);
  EXPECT_THAT(record->written(), ElementsAre("y", "sums"));
  EXPECT_EQ(record->served_by(), "builtin");
  EXPECT_THAT(error_of([&] { record->index("K"); }),
              HasSubstr("TestEffectsFwdOp: the signature has no index K"));
  EXPECT_THAT(error_of([&] { record->index("T"); }), HasSubstr("index T is not a size"));
  EXPECT_THAT(error_of([&] { record->tensor("z"); }), HasSubstr("the signature has no tensor z"));
}

TEST(ContractD, Contract_D6_a_mutated_input_is_written_where_the_call_writes_it) {
  const EffectsOp in_place(true, false);
  in_place(iota(2, 3));
  EXPECT_THAT(in_place.last_call()->written(), ElementsAre("x", "y"));
  EXPECT_EQ(in_place.last_call()->effect_branch(), "mutated_no_sums");
  EXPECT_EQ(in_place.last_call()->traffic().written_bytes, 48);
  const EffectsOp pure(false, false);
  pure(iota(2, 3));
  EXPECT_THAT(pure.last_call()->written(), ElementsAre("y"))
      << "mutated under a condition that did not hold";
  EXPECT_EQ(pure.last_call()->effect_branch(), "no_sums");
  EXPECT_EQ(pure.last_call()->traffic().written_bytes, 24);
}

TEST(ContractD, Contract_D6_the_op_s_own_kernels_that_ran_are_in_the_record) {
  const ScaleOp op(2, "t");
  op(iota(2, 4));
  const RecordPtr record = op.last_call();
  ASSERT_EQ(record->kernels().size(), 1u);
  EXPECT_EQ(record->kernels()[0].interface, "scale");
  EXPECT_EQ(record->kernels()[0].entry->implementation, "scale_fours");
}

TEST(ContractD, Contract_D6_metadata_is_read_lazily) {
  const CountOp op;
  const double one_row[] = {1, 1};
  const Tensor rows = Tensor::from_values({1, 2}, DType::kI32, one_row);
  op(iota(4, 3), rows);
  const RecordPtr record = op.last_call();
  EXPECT_TRUE(record->metadata("rows").is_same_view(rows)) << "kept, not copied";
  EXPECT_THAT(error_of([&] { record->metadata("x"); }), HasSubstr("x is no metadata input"));
}

TEST(ContractD, Contract_D6_a_staged_record_is_the_sub_ops_last_call) {
  const ChainOp chain(2, "t");
  chain(iota(1, 2));
  EXPECT_EQ(chain.last_call()->stages("first").at(0), chain.held_delegates()[0].op->last_call());
}

TEST(ContractD, Contract_D6_a_record_stays_as_it_is_when_later_calls_complete) {
  const WidthOp op("w");
  op(iota(2, 3));
  const RecordPtr first = op.last_call();
  op(iota(4, 5));
  EXPECT_NE(op.last_call(), first);
  EXPECT_EQ(first->index("N"), 3);
  EXPECT_EQ(first->stages("by_width").size(), 1u);
  EXPECT_EQ(first->stages("by_width")[0]->index("N"), 3);
}

TEST(ContractD, Contract_D6_a_record_outlives_its_op) {
  RecordPtr record;
  {
    const ChainOp chain(2, "t");
    chain(iota(2, 3));
    record = chain.last_call();
  }
  EXPECT_EQ(record->op(), "TestChainFwdOp");
  EXPECT_EQ(record->stages("second").at(0)->index("M"), 2);
}

TEST(ContractD, Contract_D6_last_call_before_any_completed_call_is_an_error) {
  const ScaleOp op;
  EXPECT_EQ(kind_of([&] { op.last_call(); }), ErrorKind::kState);
  EXPECT_EQ(error_of([&] { op.last_call(); }),
            "RuntimeError: TestScaleFwdOp: no call has completed yet, so there is no last_call");
  EXPECT_NE(kind_of([&] { op(iota(2, 3).select(0, 0)); }), std::nullopt);
  EXPECT_EQ(kind_of([&] { op.last_call(); }), ErrorKind::kState)
      << "a failed call is no completed one";
}

TEST(ContractD, Contract_D6_calls_are_timed_on_request) {
  const ScaleOp op;
  op(iota(2, 3));
  EXPECT_EQ(op.last_call()->elapsed_us(), std::nullopt);
  set_call_timing(true);
  op(iota(2, 3));
  set_call_timing(false);
  ASSERT_TRUE(op.last_call()->elapsed_us().has_value());
  EXPECT_GT(*op.last_call()->elapsed_us(), 0);
}

// D7 ------------------------------------------------------------------------------------------

TEST(ContractD, Contract_D7_work_on_other_threads_joins_its_call_by_a_token) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    const auto a = self.hold("a", settled);
    const CallToken token = call.token();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const JoinCall join(token);
        scale(a, call.input(0));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return scale(a, call.input(0));
  });
  op(iota(1, 2));
  EXPECT_EQ(op.last_call()->stages("a").size(), 5u);
}

TEST(ContractD, Contract_D7_without_the_token_it_is_a_call_of_its_own) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    const auto a = self.hold("a", settled);
    std::thread([&] { scale(a, call.input(0)); }).join();
    return scale(self.hold("b", settled), call.input(0));
  });
  op(iota(1, 2));
  EXPECT_THAT(op.last_call()->stages("a"), IsEmpty());
  EXPECT_NE(op.hold("a", settled)->last_call(), nullptr);
}

TEST(ContractD, Contract_D7_an_unheld_sub_op_on_a_joined_thread_fails_the_call) {
  const ScaleOp stranger;
  const FreeOp op([&](const FreeOp&, Call& call) {
    const CallToken token = call.token();
    std::thread([&] {
      const JoinCall join(token);
      stranger(call.input(0));
    }).join();
    return call.output();
  });
  EXPECT_EQ(kind_of([&] { op(iota(1, 2)); }), ErrorKind::kDelegate);
}

TEST(ContractD, Contract_D7_a_token_of_a_call_that_is_over_cannot_be_joined) {
  CallToken token;
  EXPECT_THAT(error_of([&] { JoinCall join(token); }), HasSubstr("the token names no call"));
  const FreeOp op([&](const FreeOp&, Call& call) {
    token = call.token();
    return call.output();
  });
  op(iota(1, 2));
  EXPECT_EQ(kind_of([&] { JoinCall join(token); }), ErrorKind::kState);
  EXPECT_THAT(error_of([&] { JoinCall join(token); }), HasSubstr("the token's call is over"));
}

TEST(ContractD, Contract_D7_a_forward_that_does_not_wait_fails_once_every_thread_has_left) {
  std::thread straggler;
  std::latch joined(1), go(1);
  std::atomic<bool> left{false};
  bool wait = false;
  const FreeOp op([&](const FreeOp& self, Call& call) {
    if (wait) return call.output();
    const auto a = self.hold("a", settled);
    straggler = std::thread([&, a, token = call.token(), x = call.input(0)] {
      const JoinCall join(token);
      joined.count_down();
      go.wait();
      scale(a, x);
      left = true;
    });
    joined.wait();
    std::thread([&] { go.count_down(); }).detach();
    return call.output();
  });
  EXPECT_THAT(error_of([&] { op(iota(1, 2)); }),
              HasSubstr("1 threads are still joined to the call"));
  EXPECT_TRUE(left) << "the call waited for it";
  straggler.join();
  wait = true;
  EXPECT_NO_THROW(op(iota(1, 2)));
}

// D8 ------------------------------------------------------------------------------------------

TEST(ContractD, Contract_D8_calls_of_several_threads_have_their_own_records_and_stages) {
  const ChainOp chain(2, "t");
  constexpr int kThreads = 4;
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      for (int round = 0; round < 50; ++round) {
        const Tensor y = chain(iota(i + 1, 2));
        if (y.shape()[0] != i + 1 || y.at({i, 1}) != 4.0 * 2 * (i + 1)) ++wrong;
        const RecordPtr record = chain.last_call();
        const auto first = record->stages("first");
        if (first.size() != 1 || first[0]->index("M") != record->index("M")) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ContractD, Contract_D9_a_hit_selects_and_builds_nothing) {
  reset_counts();
  const ScaleOp op(2, "t");
  op(iota(2, 3));
  op(iota(2, 3));
  op(iota(2, 3));
  EXPECT_EQ(count_of(Point::kEntryBuild, "t"), 1);
}

}  // namespace
}  // namespace tileops::contract
