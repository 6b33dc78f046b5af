// SPDX-License-Identifier: Apache-2.0
// H5: a fault at every step of a call, at every depth, leaves exactly the state that H1-H4 say.
// A model of the rules (fault_model.h) says what has to be left; the ops say what is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "contract/contract_ops.h"
#include "contract/fault_model.h"
#include "contract/fault_target.h"
#include "tileops/core/allocator.h"

namespace tileops::contract {
namespace {

constexpr int64_t kEarlierN = 3;  // the N of calls before, served by other kernels

/// Fails the n-th allocation of tensors.
class FailingAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, Stream stream) override {
    if (left >= 0 && left-- == 0) throw Error(ErrorKind::kOutOfMemory, "injected");
    return before_->allocate(bytes, stream);
  }
  void deallocate(void* data, size_t bytes, Stream stream) noexcept override {
    before_->deallocate(data, bytes, stream);
  }
  int left = -1;

 private:
  Allocator* before_ = &allocator_for(DeviceType::kCPU);
};

/// The chain's tag is the one that its holder's forward knows it by.
constexpr const char* kChainTags[] = {"", "chain", "nest.inner", "deep.middle.inner"};

/// The tag of the leaf that another composite may hold too.
std::string shared_tag(int depth) {
  return depth == 0 ? "leaf" : std::string(kChainTags[depth]) + ".first";
}

std::shared_ptr<Op> make_tree(int depth, const std::shared_ptr<Op>& shared) {
  if (depth == 0) return shared != nullptr ? shared : std::make_shared<ScaleOp>(3, "leaf");
  const auto chain = std::make_shared<ChainOp>(3, kChainTags[depth], shared, nullptr);
  if (depth == 1) return chain;
  if (depth == 2) return std::make_shared<NestOp>("nest", chain);
  return std::make_shared<DeepOp>("deep", std::make_shared<NestOp>("deep.middle", chain));
}

class Experiment {
 public:
  explicit Experiment(const Case& c) : case_(c), target_(c.world) {
    reset_counts();
    std::shared_ptr<Op> first;
    if (c.shared) {
      first = std::make_shared<ScaleOp>(3, shared_tag(c.depth));
      other_ = std::make_shared<ChainOp>(3, "other", first, nullptr);
    }
    root_ = make_tree(c.depth, first);
    model_.set_target(c.world != World::kBuiltin);
    model_.add(root_, c.world);
    before();
  }

  size_t num_nodes() const { return model_.nodes.size(); }
  bool applies() const {
    const Node& victim = model_.nodes[case_.victim];
    switch (case_.fault) {
      case Fault::kSelection:
        return !victim.selected && victim_runs();
      case Fault::kForward:
        return case_.world == World::kBuiltin ? victim_runs()
                                              : !victim.runs_kernels && victim_runs();
      case Fault::kTune:
        return case_.tuned && victim.runs_kernels && victim_runs();
      case Fault::kUncallable:
        return case_.world != World::kBuiltin && victim.runs_kernels && victim_runs();
      case Fault::kAllocation:
      case Fault::kBuild:
      case Fault::kKernel:
        return victim.runs_kernels && victim_runs();
      default:
        return victim_runs();
    }
  }

  void run() {
    SCOPED_TRACE(to_string(case_));
    if (case_.tuned) root_->request_tune();
    std::vector<RecordPtr> records;
    std::vector<int> completed;
    for (const Node& node : model_.nodes) {
      records.push_back(record_of(*node.op));
      completed.push_back(node.completed);
    }
    const RecordPtr other_record = other_ == nullptr ? nullptr : record_of(*other_);
    const auto other_target = other_ == nullptr ? std::nullopt : other_->serving_target();

    const int selections = selections_before_victim();
    EXPECT_FALSE(model_.call(0, kFaultyN, case_.fault, case_.victim));
    inject(selections);
    check_state(records, completed);
    if (other_ != nullptr) {
      EXPECT_EQ(record_of(*other_), other_record);
      EXPECT_EQ(other_->serving_target(), other_target);
    }
    check_next_call();
  }

 private:
  /// A victim below a composite that is served whole is never reached.
  bool victim_runs() const { return reachable(0); }
  bool reachable(size_t i) const {
    if (i == case_.victim) return true;
    const Node& node = model_.nodes[i];
    if (node.runs_kernels) return false;
    return std::any_of(node.children.begin(), node.children.end(),
                       [&](size_t child) { return reachable(child); });
  }

  void before() {
    const Tensor x = iota(2, kEarlierN);
    if (other_ != nullptr) {
      // The model follows the tree alone: what the other composite's call did to the shared leaf is
      // set by hand, where that composite calls it.
      call_op(*other_, x);
      for (Node& node : model_.nodes) {
        if (node.tag != shared_tag(case_.depth) || case_.world == World::kChainTarget) continue;
        node.selected = true;
        node.kernels.insert(kEarlierN);
      }
    }
    if (case_.before == Before::kRoot) {
      call_op(*root_, x);
      EXPECT_TRUE(model_.call(0, kEarlierN, std::nullopt, 0));
    } else if (case_.before == Before::kLeaves) {
      for (size_t i = 0; i < model_.nodes.size(); ++i) {
        if (!model_.nodes[i].runs_kernels) continue;
        call_op(*model_.nodes[i].op, x);
        EXPECT_TRUE(model_.call(i, kEarlierN, std::nullopt, 0));
      }
    }
  }

  /// How many unselected ops select before the victim.
  int selections_before_victim() const {
    int count = 0;
    const std::function<bool(size_t)> visit = [&](size_t i) -> bool {
      if (i == case_.victim) return true;
      const Node& node = model_.nodes[i];
      if (!node.selected) ++count;
      if (node.runs_kernels) return false;
      return std::any_of(node.children.begin(), node.children.end(), visit);
    };
    visit(0);
    return count;
  }
  int kernels_before_victim() const {
    int count = 0;
    const std::function<bool(size_t)> visit = [&](size_t i) -> bool {
      if (i == case_.victim) return true;
      const Node& node = model_.nodes[i];
      if (node.runs_kernels) {
        ++count;
        return false;
      }
      return std::any_of(node.children.begin(), node.children.end(), visit);
    };
    visit(0);
    return count;
  }

  void inject(int selections_before) {
    const std::string& tag = model_.nodes[case_.victim].tag;
    Tensor x = iota(2, kFaultyN);
    if (case_.fault == Fault::kCheck && case_.victim == 0) x = x.select(0, 0);
    const Tensor small = iota(1, 1);
    target_.selections_left = case_.fault == Fault::kSelection ? selections_before : -1;
    if (case_.fault == Fault::kUncallable) target_.uncallable = tag;
    const HookGuard hook([&](Point point, const std::string& at_tag) -> bool {
      if (at_tag != tag) return false;
      const auto step = [&](Point where, Fault fault) {
        return point == where && case_.fault == fault;
      };
      if (step(Point::kForward, Fault::kForward) || step(Point::kEntryBuild, Fault::kBuild) ||
          step(Point::kKernel, Fault::kKernel) || step(Point::kTune, Fault::kTune)) {
        throw std::runtime_error("injected");
      }
      return step(Point::kFeed, Fault::kCheck) || step(Point::kResult, Fault::kResult);
    });
    FailingAllocator allocator;
    Allocator* const outer = set_allocator(DeviceType::kCPU, &allocator);
    allocator.left = case_.fault == Fault::kAllocation ? kernels_before_victim() : -1;
    const auto call = [&] { EXPECT_THROW(call_op(*root_, x), std::exception); };
    if (case_.caught) {
      // A parent that catches: what it calls next is filed with it, so the failed calls left the
      // stack.
      const FreeOp parent(
          [&](const FreeOp& self, Call& open) {
            call();
            allocator.left = -1;
            return ScaleOp::invoke(*self.hold("b", settled), open.input(0));
          },
          {.target = "builtin"});
      parent(small);
      EXPECT_EQ(parent.last_call()->stages("b").size(), 1u);
      EXPECT_TRUE(parent.last_call()->stages("a").empty());
    } else {
      call();
    }
    set_allocator(DeviceType::kCPU, outer);
    target_.selections_left = -1;
    target_.uncallable.clear();
  }

  void check_state(const std::vector<RecordPtr>& records, const std::vector<int>& completed) {
    for (size_t i = 0; i < model_.nodes.size(); ++i) {
      const Node& node = model_.nodes[i];
      EXPECT_EQ(node.op->serving_target().has_value(), node.selected) << node.tag;
      const RecordPtr record = record_of(*node.op);
      EXPECT_EQ(record == records[i], node.completed == completed[i]) << node.tag;
      if (node.completed > completed[i]) {
        EXPECT_EQ(record->index("N"), kFaultyN) << node.tag;
      }
      EXPECT_EQ(node.op->held_delegates().size(), node.children.size()) << node.tag;
      for (size_t child = 0; child < node.children.size(); ++child) {
        EXPECT_EQ(node.op->held_delegates()[child].op, model_.nodes[node.children[child]].op);
      }
      EXPECT_EQ(node.op->tuned(), case_.tuned) << node.tag;
      if (case_.world == World::kBuiltin && node.runs_kernels) {
        EXPECT_EQ(node.op->built_entries("scale").size(), node.kernels.size()) << node.tag;
      }
    }
  }

  /// The next call works, and builds exactly what is not there.
  void check_next_call() {
    reset_counts();
    double factor = 1;
    const std::function<void(size_t)> visit = [&](size_t i) {
      const Node& node = model_.nodes[i];
      if (node.runs_kernels) {
        const double own = *node.op->params().at("factor").as_double();
        factor *= node.children.empty() ? own : own * own;
        return;
      }
      for (size_t child : node.children) visit(child);
    };
    visit(0);
    for (const int64_t n : {kFaultyN, kEarlierN}) {
      std::vector<int> wanted;
      for (const Node& node : model_.nodes) wanted.push_back(node.kernels.contains(n) ? 0 : 1);
      EXPECT_TRUE(model_.call(0, n, std::nullopt, 0));
      reset_counts();
      EXPECT_EQ(call_op(*root_, iota(2, n)).at({1, 0}), factor * static_cast<double>(n + 1));
      for (size_t i = 0; i < model_.nodes.size(); ++i) {
        const Node& node = model_.nodes[i];
        if (!node.kernels.contains(n)) continue;
        EXPECT_EQ(count_of(Point::kEntryBuild, node.tag), wanted[i]) << node.tag << ", N " << n;
      }
    }
    if (other_ != nullptr) {
      EXPECT_EQ(call_op(*other_, iota(2, 2)).at({1, 1}), 4.0 * 3 * 3);
    }
  }

  Case case_;
  TestTarget target_;
  std::shared_ptr<Op> root_, other_;
  Model model_;
};

size_t size_of_tree(int depth) { return depth == 0 ? 1 : static_cast<size_t>(2 * depth + 1); }

class FaultInWorld : public ::testing::TestWithParam<World> {};

TEST_P(FaultInWorld, Contract_H5_a_fault_at_every_step_and_depth_leaves_what_the_rules_say) {
  int num_cases = 0;
  for (int depth = 0; depth <= 3; ++depth) {
    for (size_t victim = 0; victim < size_of_tree(depth); ++victim) {
      for (int fault = 0; fault <= static_cast<int>(Fault::kResult); ++fault) {
        for (const Before before : {Before::kNothing, Before::kRoot, Before::kLeaves}) {
          for (int bits = 0; bits < 8; ++bits) {
            const Case c{GetParam(), depth,           victim,          static_cast<Fault>(fault),
                         before,     (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
            Experiment experiment(c);
            ASSERT_EQ(experiment.num_nodes(), size_of_tree(depth));
            if (!experiment.applies()) continue;
            experiment.run();
            ++num_cases;
            ASSERT_FALSE(HasFailure()) << to_string(c);
          }
        }
      }
    }
  }
  EXPECT_GT(num_cases, 1000);
  std::printf("fault injection, %s: %d cases\n", kWorldNames[static_cast<size_t>(GetParam())],
              num_cases);
}

INSTANTIATE_TEST_SUITE_P(Worlds, FaultInWorld,
                         ::testing::Values(World::kBuiltin, World::kLeafTarget,
                                           World::kChainTarget),
                         [](const auto& info) {
                           return std::string(kWorldNames[static_cast<size_t>(info.param)]);
                         });

}  // namespace
}  // namespace tileops::contract
