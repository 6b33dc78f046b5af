// SPDX-License-Identifier: Apache-2.0
// What the rules of a call and of its failure leave behind, for the fault injection to compare with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tileops/op/op.h"

namespace tileops::contract {

inline constexpr int64_t kFaultyN = 4;  // the N of the calls with a fault

enum class World { kBuiltin, kLeafTarget, kChainTarget };
inline constexpr const char* kWorldNames[] = {"builtin", "leaf_target", "chain_target"};
enum class Before { kNothing, kRoot, kLeaves };
enum class Fault {
  kCheck,
  kSelection,
  kForward,
  kAllocation,
  kBuild,
  kUncallable,
  kTune,
  kKernel,
  kResult
};
inline constexpr const char* kFaultNames[] = {"check",      "selection", "forward",
                                              "allocation", "build",     "uncallable",
                                              "tune",       "kernel",    "result"};

struct Case {
  World world;
  int depth;  // of the tree: 0 a leaf, 3 three levels of sub-ops
  size_t victim;
  Fault fault;
  Before before;
  bool tuned, shared, caught;
};

inline std::string to_string(const Case& c) {
  return std::string("world ") + kWorldNames[static_cast<int>(c.world)] + ", depth " +
         std::to_string(c.depth) + ", victim " + std::to_string(c.victim) + ", fault " +
         kFaultNames[static_cast<int>(c.fault)] + ", before " +
         std::to_string(static_cast<int>(c.before)) + (c.tuned ? ", tuned" : "") +
         (c.shared ? ", shared" : "") + (c.caught ? ", caught" : "");
}

/// What the rules know of one op.
struct Node {
  std::shared_ptr<Op> op;
  std::string tag;
  std::vector<size_t> children;  // in call order
  bool runs_kernels = false;     // a leaf, or a composite that the target serves whole
  // The state that H1-H4 speak of.
  bool selected = false;
  std::set<int64_t> kernels;  // by N
  int completed = 0;          // calls
};

/// The rules of a call (D1) and of its failure (H1-H3), and nothing else.
class Model {
 public:
  std::vector<Node> nodes;

  void add(const std::shared_ptr<Op>& op, World world) {
    const size_t i = nodes.size();
    Node node{.op = op, .tag = *op->params().at("tag").as_string()};
    const bool leaf = op->held_delegates().empty();
    node.runs_kernels = leaf || (world == World::kChainTarget && op->name() == "TestChainFwdOp");
    nodes.push_back(std::move(node));
    for (const HeldDelegate& held : op->held_delegates()) {
      nodes[i].children.push_back(nodes.size());
      add(held.op, world);
    }
  }

  /// Whether the call completes.
  bool call(size_t i, int64_t n, std::optional<Fault> fault, size_t victim) {
    Node& node = nodes[i];
    const auto hit = [&](Fault which) { return fault == which && victim == i; };
    if (hit(Fault::kCheck)) return false;
    const bool here = !node.selected;
    if (hit(Fault::kSelection)) return fail(i, here);
    node.selected = true;
    if (hit(Fault::kForward)) return fail(i, here);
    if (node.runs_kernels) {
      if (hit(Fault::kBuild) || hit(Fault::kUncallable)) return fail(i, here);
      // The builtin kernel is built when there is an output to fill; a target's allocates it
      // itself.
      if (hit(Fault::kAllocation) && !target_) return fail(i, here);
      node.kernels.insert(n);
      if (hit(Fault::kTune) || hit(Fault::kKernel) || hit(Fault::kAllocation)) return fail(i, here);
    } else {
      for (size_t child : node.children) {
        if (!call(child, n, fault, victim)) return fail(i, here);
      }
    }
    if (hit(Fault::kResult)) return fail(i, here);
    ++node.completed;
    return true;
  }

  void set_target(bool target) { target_ = target; }

 private:
  bool fail(size_t i, bool selected_here) {
    if (selected_here) undo(i);
    return false;
  }
  void undo(size_t i) {
    nodes[i].selected = false;
    nodes[i].kernels.clear();
    for (size_t child : nodes[i].children) undo(child);
  }

  bool target_ = false;
};

}  // namespace tileops::contract
