// SPDX-License-Identifier: Apache-2.0
// Traced graphs: the leaf calls of an op, as nodes that can be looked at and run again (F).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/dispatch/results.h"
#include "tileops/op/op.h"
#include "tileops/spec/facts.h"

namespace tileops {

/// A value of a graph: an input, a given `out`, or an output of a node. -1: absent.
using GraphValue = int;

struct GraphNode {
  std::string name;   // "tileops::moe_grouped_gemm_fwd", "…_out" for an effect branch
  std::string key;    // of the instance that the node calls
  std::string stage;  // path of stages from the traced op: "routed_experts.expert_mlp.gate_up"
  std::vector<GraphValue> inputs;  // in the leaf's signature order
  std::vector<GraphValue> outs;
  std::vector<GraphValue> outputs;
};

/// What decided which sub-ops a forward called: the graph is for the calls that find the same.
struct GraphAssumption {
  std::string key;                 // of the composite
  std::vector<GraphValue> inputs;  // of its call
  std::string expr;                // "T * K <= 512"; "": all sizes, where the forward does not say
  std::string tree;                // of expr, as spec::inference_json has trees
  int64_t value = 0;
};

/// What a trace saw of one value.
struct GraphValueFacts {
  std::string name;  // "hidden", "%3"
  DType dtype;
  Shape shape;
};

/// Immutable. The ops that it calls must outlive its runs.
class Graph {
 public:
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const std::vector<GraphValueFacts>& values() const { return values_; }
  const std::vector<GraphAssumption>& assumptions() const { return assumptions_; }

  /// Calls the nodes in order on new tensors, of the traced sizes or others; each node checks,
  /// selects and builds when it runs. What the graph assumes is the caller's to see to. Results as
  /// the traced op's call would return them.
  /// Errors: kType (another number of tensors, presence unlike the trace's), kState (an op of a
  /// node is gone), those of the leaves' calls.
  Results run(const spec::CallTensors& tensors) const;

  std::string text() const;
  std::string dot() const;
  std::string json() const;

 private:
  friend class TraceMode;
  std::string op_;
  std::vector<GraphValueFacts> values_;
  std::vector<GraphValue> inputs_;
  std::vector<GraphValue> outs_;
  std::vector<GraphNode> nodes_;
  std::vector<GraphAssumption> assumptions_;
  std::vector<GraphValue> results_;
};

/// Traces an op on tensors of these facts (meta tensors will do): its forward runs, each leaf is a
/// node, nothing is checked or recorded of the composites, and no kernel runs.
/// Errors: those of the leaves' checks; kOpNotAvailable where a target's builder serves a composite
/// whole; kDelegate where a composite uses kernels of its own, or passes a view that it made.
/// `device`: the calls'; where none is given that of the tensors, and the CPU for meta tensors.
Graph trace(const Op& op, const spec::CallTensors& tensors, std::optional<Device> device = {});

/// Errors: kOpNotAvailable where a target's builder serves the composite whole on the device, so
/// that it has no leaves to trace.
void check_composition_serves(const Op& op, Device device);

/// The node name of a leaf's effect branch: "<namespace>::<family>_<snake name>[_<branch>]".
std::string node_name(const spec::Entry& entry, std::string_view effect_branch);

}  // namespace tileops
