// SPDX-License-Identifier: Apache-2.0
// H: what a failed call leaves. fault_injection_test.cc enumerates every step and depth.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>
#include <thread>

#include "contract/contract_ops.h"
#include "tileops/dispatch/target.h"

namespace tileops::contract {
namespace {

using ::testing::HasSubstr;

struct Interrupt {};  // a cancellation, no error

/// Throws at this step of these tags while it lives.
template <class Thrown>
Hook throwing(Point point, const std::string& tag, Thrown thrown) {
  return [=](Point at_point, const std::string& at_tag) -> bool {
    if (at_point == point && at_tag == tag) throw thrown;
    return false;
  };
}
Hook failing(Point point, const std::string& tag) {
  return throwing(point, tag, std::runtime_error("injected"));
}

const Op& sub(const Op& op, size_t i) { return *op.held_delegates().at(i).op; }

TEST(ContractH, Contract_H1_a_call_that_throws_leaves_last_call_as_it_was) {
  const ChainOp chain(2, "t");
  chain(iota(2, 3));
  const RecordPtr before = chain.last_call();
  const RecordPtr first_before = sub(chain, 0).last_call();
  const HookGuard hook(failing(Point::kKernel, "t.second"));
  EXPECT_THROW(chain(iota(5, 3)), std::runtime_error);
  EXPECT_EQ(chain.last_call(), before);
  EXPECT_NE(sub(chain, 0).last_call(), first_before)
      << "a sub-op that completed inside keeps its own";
  EXPECT_EQ(sub(chain, 0).last_call()->index("M"), 5);
  EXPECT_EQ(sub(chain, 1).last_call()->index("M"), 2);
}

TEST(ContractH, Contract_H1_a_call_that_throws_pops_the_stack) {
  const auto broken = std::make_shared<ScaleOp>(2, "broken");
  const FreeOp op([&](const FreeOp& self, Call& call) {
    const auto a = self.hold("a", settled, broken);
    EXPECT_THROW(ScaleOp::invoke(*a, call.input(0)), std::runtime_error);
    return ScaleOp::invoke(*self.hold("b", settled), call.input(0));
  });
  const HookGuard hook(failing(Point::kKernel, "broken"));
  op(iota(2, 3));
  EXPECT_EQ(op.last_call()->stages("b").size(), 1u)
      << "filed with the parent, not with what failed";
}

TEST(ContractH, Contract_H2_a_failed_call_that_selected_drops_selection_entries_and_kernels) {
  reset_counts();
  const ChainOp chain(2, "t");
  {
    const HookGuard hook(failing(Point::kKernel, "t.second"));
    EXPECT_THROW(chain(iota(2, 3)), std::runtime_error);
  }
  EXPECT_EQ(chain.serving_target(), std::nullopt);
  for (size_t i : {0, 1}) {
    EXPECT_EQ(sub(chain, i).serving_target(), std::nullopt);
    EXPECT_TRUE(sub(chain, i).built_entries("scale").empty());
  }
  EXPECT_TRUE(chain.iter_kernels().empty());
  EXPECT_EQ(values_of(chain(iota(1, 1))), std::vector<double>{4});
  EXPECT_EQ(count_of(Point::kEntryBuild, "t.first"), 2) << "built again";
}

TEST(ContractH, Contract_H2_also_a_sub_op_that_selected_earlier_is_unselected) {
  const auto shared = std::make_shared<ScaleOp>(2, "shared");
  (*shared)(iota(2, 3));
  const ChainOp chain(2, "t", shared, nullptr);
  const ChainOp other(2, "o", shared, nullptr);
  other(iota(2, 3));
  const HookGuard hook(failing(Point::kKernel, "t.second"));
  EXPECT_THROW(chain(iota(2, 3)), std::runtime_error);
  EXPECT_EQ(shared->serving_target(), std::nullopt)
      << "though it selected earlier, and another holds it too";
  EXPECT_TRUE(shared->built_entries("scale").empty());
  EXPECT_EQ(other.serving_target(), "builtin") << "the other composite is as it was";
  EXPECT_NO_THROW(other(iota(2, 3)));
}

TEST(ContractH, Contract_H2_a_selection_that_throws_midway_is_undone_likewise) {
  const auto shared = std::make_shared<ScaleOp>(2, "shared");
  (*shared)(iota(2, 3));
  const ChainOp chain(2, "t", shared, nullptr);
  const TargetGuard target("nervous");
  register_target_detector("nervous",
                           [](Device) -> bool { throw std::runtime_error("no driver"); });
  EXPECT_EQ(kind_of([&] { chain(iota(2, 3)); }), ErrorKind::kBackend);
  EXPECT_EQ(chain.serving_target(), std::nullopt);
  EXPECT_EQ(shared->serving_target(), std::nullopt);
}

TEST(ContractH, Contract_H2_a_call_that_fails_before_selection_leaves_the_sub_ops) {
  const auto shared = std::make_shared<ScaleOp>(2, "shared");
  (*shared)(iota(2, 3));
  const ChainOp chain(2, "t", shared, nullptr);
  EXPECT_NE(kind_of([&] { chain(iota(2, 3).select(0, 0)); }), std::nullopt);
  EXPECT_EQ(shared->serving_target(), "builtin");
  EXPECT_EQ(shared->built_entries("scale").size(), 1u);
}

TEST(ContractH, Contract_H2_held_sub_ops_records_tuned_mode_and_warnings_stay) {
  const WidthOp op("w");
  op(iota(2, 3));
  op.request_tune();
  const RecordPtr before = op.last_call();
  const WidthOp cold("c");
  cold.request_tune();
  const HookGuard hook([](Point point, const std::string&) -> bool {
    if (point == Point::kKernel) throw std::runtime_error("injected");
    return false;
  });
  EXPECT_THROW(cold(iota(2, 5)), std::runtime_error);
  EXPECT_EQ(cold.held_delegates().size(), 1u);
  EXPECT_TRUE(cold.tuned());
  EXPECT_TRUE(sub(cold, 0).tuned());
  EXPECT_THROW(op(iota(2, 5)), std::runtime_error);
  EXPECT_EQ(op.held_delegates().size(), 2u);
  EXPECT_EQ(op.last_call(), before);
}

TEST(ContractH, Contract_H2_the_next_call_selects_again) {
  const TargetGuard target("late");
  bool claims = false;
  register_target_detector("late", [&](Device) { return claims; });
  register_target_builder("late", "TestScaleFwdOp", [](const BuildRequest&) {
    return make_target_kernel([](const spec::CallTensors& tensors) -> Results {
      return {Tensor::from_values(
          tensors.inputs[0].shape(), DType::kF32,
          std::vector<double>(static_cast<size_t>(tensors.inputs[0].num_elements()), 7))};
    });
  });
  const ScaleOp op(2, "t");
  {
    const HookGuard hook(failing(Point::kKernel, "t"));
    EXPECT_THROW(op(iota(1, 1)), std::runtime_error);
  }
  claims = true;
  EXPECT_EQ(op(iota(1, 1)).at({0, 0}), 7);
  EXPECT_EQ(op.serving_target(), "late");
}

TEST(ContractH, Contract_H2_a_call_of_another_thread_finishes_on_the_kernel_that_it_holds) {
  std::latch running(1), undone(1);
  const HookGuard hook([&](Point point, const std::string& tag) -> bool {
    if (point != Point::kKernel || tag != "slow") return false;
    running.count_down();
    undone.wait();
    return false;
  });
  const auto slow = std::make_shared<ScaleOp>(2, "slow");
  std::thread other;
  const FreeOp parent([&](const FreeOp& self, Call&) -> Tensor {
    self.hold("a", settled, slow);
    other = std::thread([&] { EXPECT_EQ((*slow)(iota(1, 1)).at({0, 0}), 2); });
    running.wait();
    throw std::runtime_error("injected");
  });
  EXPECT_THROW(parent(iota(1, 1)), std::runtime_error);
  EXPECT_EQ(slow->serving_target(), std::nullopt)
      << "undone while the other call runs on its kernel";
  EXPECT_TRUE(slow->iter_kernels().empty());
  undone.count_down();
  other.join();
  EXPECT_EQ(slow->last_call()->served_by(), "builtin") << "and the other call completed";
}

TEST(ContractH, Contract_H2_no_kernel_of_a_dropped_selection_serves_a_later_one) {
  const TargetGuard guards[] = {TargetGuard("old"), TargetGuard("new")};
  bool old_claims = true;
  const auto giving = [](double value) {
    return [value](const BuildRequest&) {
      return make_target_kernel([value](const spec::CallTensors& tensors) -> Results {
        at(Point::kKernel, "target");
        const Tensor& x = tensors.inputs[0];
        return {
            Tensor::from_values(x.shape(), DType::kF32,
                                std::vector<double>(static_cast<size_t>(x.num_elements()), value))};
      });
    };
  };
  register_target_builder("old", "TestScaleFwdOp", giving(1));
  register_target_builder("new", "TestScaleFwdOp", giving(2));
  register_target_detector("old", [&](Device) { return old_claims; });
  register_target_detector("new", [&](Device) { return !old_claims; });
  const ScaleOp op(2, "t");
  {
    const HookGuard hook(failing(Point::kKernel, "target"));
    EXPECT_THROW(op(iota(1, 1)), std::runtime_error);
  }
  old_claims = false;
  EXPECT_EQ(op(iota(1, 1)).at({0, 0}), 2);
}

TEST(ContractH, Contract_H3_what_an_earlier_call_selected_and_built_stays) {
  reset_counts();
  const ChainOp chain(2, "t");
  chain(iota(2, 3));
  {
    const HookGuard hook(failing(Point::kKernel, "t.second"));
    EXPECT_THROW(chain(iota(2, 4)), std::runtime_error);
  }
  EXPECT_EQ(chain.serving_target(), "builtin");
  EXPECT_EQ(sub(chain, 1).serving_target(), "builtin");
  EXPECT_EQ(sub(chain, 1).built_entries("scale").size(), 2u) << "also what this call built";
  EXPECT_EQ(count_of(Point::kEntryBuild, "t.first"), 2);
  chain(iota(2, 3));
  EXPECT_EQ(count_of(Point::kEntryBuild, "t.first"), 2);
}

TEST(ContractH, Contract_H4_what_was_written_is_not_undone) {
  const ChainOp chain(2, "t");
  const Tensor out = iota(1, 2);
  const HookGuard hook(
      [](Point point, const std::string& tag) { return point == Point::kResult && tag == "t"; });
  EXPECT_EQ(kind_of([&] { chain(iota(1, 2), out); }), ErrorKind::kBackend);
  EXPECT_EQ(values_of(out), (std::vector<double>{4, 8}));
}

TEST(ContractH, Contract_H4_a_cancellation_skips_the_undo_never_the_pop) {
  const auto cancelled = std::make_shared<ScaleOp>(2, "cancelled");
  const FreeOp op([&](const FreeOp& self, Call& call) {
    const auto a = self.hold("a", settled, cancelled);
    EXPECT_THROW(ScaleOp::invoke(*a, call.input(0)), Interrupt);
    return ScaleOp::invoke(*self.hold("b", settled), call.input(0));
  });
  const HookGuard hook(throwing(Point::kKernel, "cancelled", Interrupt()));
  op(iota(2, 3));
  EXPECT_EQ(op.last_call()->stages("b").size(), 1u);
  EXPECT_EQ(cancelled->serving_target(), "builtin") << "the selection stays";
  EXPECT_EQ(kind_of([&] { cancelled->last_call(); }), ErrorKind::kState);
}

}  // namespace
}  // namespace tileops::contract
