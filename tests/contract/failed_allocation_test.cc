// SPDX-License-Identifier: Apache-2.0
// H5, H1: every heap allocation of a call fails in turn, and leaves what the rules say.
#include <gtest/gtest.h>

#include <cstdio>

#include "contract/contract_ops.h"
#include "contract/failing_heap.h"
#include "contract/fault_model.h"
#include "contract/fault_target.h"

namespace tileops::contract {
namespace {

class AllocationInWorld : public ::testing::TestWithParam<World> {};

/// Fails the n-th heap allocation of a call, for every n, once or from then on.
TEST_P(AllocationInWorld, Contract_H5_an_allocation_that_fails_anywhere_leaves_what_the_rules_say) {
  int num_cases = 0;
  for (const bool warm : {false, true}) {
    for (const bool sticky : {false, true}) {
      for (int64_t n = 0;; ++n) {
        const TestTarget target(GetParam());
        const auto root = std::make_shared<DeepOp>("deep");
        Model model;
        model.add(root, GetParam());
        const Tensor x = iota(2, kFaultyN);
        if (warm) call_op(*root, x);
        const RecordPtr before = record_of(*root);
        reset_counts();

        failing_heap() = {.left = n, .sticky = sticky};
        bool threw = false;
        Tensor y;
        try {
          y = call_op(*root, x);
        } catch (const std::exception&) {
          threw = true;
        }
        failing_heap().left = -1;

        SCOPED_TRACE(std::to_string(n) + (warm ? ", warm" : ", cold") + (sticky ? ", sticky" : ""));
        for (const Node& node : model.nodes) {
          if (!threw) break;
          const bool called = warm && node.op->serving_target().has_value();
          EXPECT_EQ(node.op->serving_target().has_value(), called) << node.tag;
          if (warm && GetParam() != World::kChainTarget) {
            EXPECT_TRUE(called) << node.tag;
          }
          if (!warm && GetParam() == World::kBuiltin && node.runs_kernels) {
            EXPECT_TRUE(node.op->built_entries("scale").empty()) << node.tag;
          }
        }
        if (threw) {
          EXPECT_EQ(record_of(*root), before);
        } else {
          EXPECT_EQ(record_of(*root)->index("N"), kFaultyN);
        }
        const Tensor again = call_op(*root, x);
        if (y.defined()) {
          EXPECT_EQ(values_of(y), values_of(again));
        }
        EXPECT_EQ(again.at({0, 0}), 3.0 * 3 * 5 * 7);
        EXPECT_EQ(root->last_call()->stages("middle").size(), 1u);
        ASSERT_FALSE(HasFailure());
        if (!failing_heap().failed) break;
        ++num_cases;
      }
    }
  }
  EXPECT_GT(num_cases, 20);
  std::printf("failed allocations, %s: %d cases\n", kWorldNames[static_cast<size_t>(GetParam())],
              num_cases);
}

INSTANTIATE_TEST_SUITE_P(Worlds, AllocationInWorld,
                         ::testing::Values(World::kBuiltin, World::kLeafTarget,
                                           World::kChainTarget),
                         [](const auto& info) {
                           return std::string(kWorldNames[static_cast<size_t>(info.param)]);
                         });

/// The allocations of handing a sub-op's record to its parent fail too.
TEST(FailedAllocation,
     Contract_H1_a_sub_op_whose_call_threw_for_want_of_memory_keeps_its_last_call) {
  int num_cases = 0;
  for (int64_t n = 0;; ++n) {
    const auto sub_op = std::make_shared<ScaleOp>(2, "sub");
    call_op(*sub_op, iota(1, kFaultyN));
    const RecordPtr before = sub_op->last_call();
    bool threw = false;
    const FreeOp parent([&](const FreeOp& self, Call& call) {
      const auto held = self.hold("a", settled, sub_op);
      const Tensor& x = call.input(0);
      failing_heap() = {.left = n};
      try {
        call_op(*held, x);
      } catch (const std::exception&) {
        threw = true;
      }
      failing_heap().left = -1;
      return call_op(*self.hold("b", settled), x);
    });
    call_op(parent, iota(1, kFaultyN));
    EXPECT_EQ(sub_op->last_call() == before, threw) << n;
    EXPECT_EQ(parent.last_call()->stages("a").size(), threw ? 0u : 1u) << n;
    if (!failing_heap().failed) break;
    ++num_cases;
  }
  EXPECT_GE(num_cases, 2) << "the output, the record's place in the parent";
}

}  // namespace
}  // namespace tileops::contract
