// SPDX-License-Identifier: Apache-2.0
// A graph as text, DOT and JSON.
#include <nlohmann/json.hpp>

#include "tileops/core/check.h"
#include "tileops/op/trace.h"

namespace tileops {
namespace {

std::string value_text(const std::vector<GraphValueFacts>& values, GraphValue value) {
  return value < 0 ? "-" : values[static_cast<size_t>(value)].name;
}

std::string list_text(const std::vector<GraphValueFacts>& values,
                      const std::vector<GraphValue>& list) {
  std::string text;
  for (GraphValue value : list) text += (text.empty() ? "" : ", ") + value_text(values, value);
  return text;
}

std::string typed(const GraphValueFacts& facts) {
  return fmt::format("{}: {}{}", facts.name, dtype_name(facts.dtype), to_string(facts.shape));
}

}  // namespace

std::string Graph::text() const {
  std::string text = fmt::format("graph of {}\n", op_);
  const auto list = [&](std::string_view word, const std::vector<GraphValue>& slots) {
    for (GraphValue slot : slots) {
      if (slot >= 0)
        text += fmt::format("  {} {}\n", word, typed(values_[static_cast<size_t>(slot)]));
    }
  };
  list("input", inputs_);
  list("out", outs_);
  for (const GraphNode& node : nodes_) {
    text += fmt::format("  {} = {}({}{}{})  # {} {}\n", list_text(values_, node.outputs), node.name,
                        list_text(values_, node.inputs), node.outs.empty() ? "" : " -> ",
                        list_text(values_, node.outs), node.stage, node.key);
  }
  for (const GraphAssumption& assumption : assumptions_) {
    text +=
        assumption.expr.empty()
            ? fmt::format("  for the sizes of ({}) alone\n", list_text(values_, assumption.inputs))
            : fmt::format("  where {} is {} of ({})\n", assumption.expr, assumption.value,
                          list_text(values_, assumption.inputs));
  }
  return text + fmt::format("  return {}\n", list_text(values_, results_));
}

std::string Graph::dot() const {
  std::string text = "digraph {\n  node [shape=box];\n";
  for (GraphValue value : inputs_) {
    if (value < 0) continue;
    text += fmt::format("  v{} [shape=plaintext, label=\"{}\"];\n", value,
                        typed(values_[static_cast<size_t>(value)]));
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const GraphNode& node = nodes_[i];
    text += fmt::format("  n{} [label=\"{}\\n{}\"];\n", i, node.name, node.stage);
    for (GraphValue value : node.outputs) {
      if (value < 0) continue;
      text += fmt::format("  v{} [shape=plaintext, label=\"{}\"];\n  n{} -> v{};\n", value,
                          typed(values_[static_cast<size_t>(value)]), i, value);
    }
    for (GraphValue value : node.inputs) {
      if (value >= 0) text += fmt::format("  v{} -> n{};\n", value, i);
    }
  }
  return text + "}\n";
}

std::string Graph::json() const {
  nlohmann::ordered_json json{{"op", op_}, {"inputs", inputs_}, {"outs", outs_}};
  for (const GraphValueFacts& facts : values_) {
    json["values"].push_back(
        {{"name", facts.name},
         {"dtype", dtype_name(facts.dtype)},
         {"shape", std::vector<int64_t>(facts.shape.begin(), facts.shape.end())}});
  }
  json["nodes"] = nlohmann::ordered_json::array();
  for (const GraphNode& node : nodes_) {
    json["nodes"].push_back({{"name", node.name},
                             {"key", node.key},
                             {"stage", node.stage},
                             {"inputs", node.inputs},
                             {"outs", node.outs},
                             {"outputs", node.outputs}});
  }
  json["assumptions"] = nlohmann::ordered_json::array();
  for (const GraphAssumption& assumption : assumptions_) {
    json["assumptions"].push_back({{"key", assumption.key},
                                   {"inputs", assumption.inputs},
                                   {"expr", assumption.expr},
                                   {"tree", nlohmann::ordered_json::parse(assumption.tree)},
                                   {"value", assumption.value}});
  }
  json["results"] = results_;
  return json.dump(2);
}

}  // namespace tileops
