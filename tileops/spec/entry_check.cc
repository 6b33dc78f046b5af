// SPDX-License-Identifier: Apache-2.0
// Faults that show in an entry as a whole.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tileops/spec/entry_reader.h"
#include "tileops/spec/plan.h"

namespace tileops::spec {
namespace {

constexpr size_t kMaxDiscriminants = 16;

void check_limits(EntryContext& context, const Place& place) {
  const EntryImpl& entry = context.entry;
  if (entry.inputs.size() + entry.outputs.size() > kMaxTensors ||
      entry.construction.size() > kMaxTensors) {
    context.report.add("S310", place.at("signature", 0),
                       fmt::format("more than {} tensors", kMaxTensors));
  }
  if (entry.discriminants.size() > kMaxDiscriminants) {
    context.report.add("S310", place.at("signature", 0),
                       fmt::format("more than {} discriminants", kMaxDiscriminants));
  }
  if (entry.indices.size() > kMaxIndices) {
    context.report.add("S310", place.at("signature", 0),
                       fmt::format("more than {} indices", kMaxIndices));
  }
}

void check_order(EntryContext& context, const Place& place) {
  const auto& inputs = context.entry.inputs;
  bool keyword = false;
  bool optional = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorDecl& input = inputs[i];
    const Place at = place.at("signature.inputs." + input.name, context.entry.input_specs[i].line);
    if (keyword && !input.keyword_only) {
      context.report.add("S313", at, "a positional input after a keyword-only one");
    }
    if (optional && !input.optional && !input.keyword_only) {
      context.report.add("S313", at, "a required input after an optional one");
    }
    keyword = keyword || input.keyword_only;
    optional = optional || (input.optional && !context.entry.input_specs[i].nullable);
  }
}

void check_groups(EntryContext& context, const Place& place) {
  const EntryImpl& entry = context.entry;
  std::map<std::string, int> members;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const std::string& group = entry.input_specs[i].group;
    if (group.empty()) continue;
    ++members[group];
    if (!entry.inputs[i].optional) {
      context.report.add(
          "S312", place.at("signature.inputs." + entry.inputs[i].name, entry.input_specs[i].line),
          "a tensor of a group is optional");
    }
  }
  for (const auto& [group, count] : members) {
    if (count > 1) continue;
    context.report.add("S312", place.at("signature.inputs", 0),
                       fmt::format("group {} has one tensor", group));
  }
}

void check_effects(EntryContext& context, const Place& place) {
  const EntryImpl& entry = context.entry;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    if (!entry.inputs[i].mutated || !entry.inputs[i].metadata) continue;
    context.report.add(
        "S502", place.at("signature.inputs." + entry.inputs[i].name, entry.input_specs[i].line),
        "metadata is read after the call: it cannot be mutated");
  }
  for (size_t j = 0; j < entry.outputs.size(); ++j) {
    const int alias = entry.output_specs[j].alias;
    if (alias < 0) continue;
    const TensorDecl& input = entry.inputs[static_cast<size_t>(alias)];
    const TensorDecl& output = entry.outputs[j];
    if (input.shape_text != output.shape_text || input.dtype_text != output.dtype_text) {
      context.report.add("S504",
                         place.at("signature.outputs." + output.name, entry.output_specs[j].line),
                         fmt::format("it is {}, but declared otherwise", input.name));
    }
    if (input.optional && !output.optional) {
      context.report.add("S508",
                         place.at("signature.outputs." + output.name, entry.output_specs[j].line),
                         fmt::format("{} may be absent, and it not", input.name));
    }
  }
}

void collect_used(const ExprNode& node, std::set<int>& used) {
  if (node.op == ExprOp::kIndex) used.insert(node.slot);
  for (const ExprNode& kid : node.kids) collect_used(kid, used);
}

void check_used(EntryContext& context, const Place& place) {
  const EntryImpl& entry = context.entry;
  std::set<int> used;
  for (const auto* specs : {&entry.construction_specs, &entry.input_specs}) {
    for (const TensorSpec& spec : *specs) {
      for (const auto& shape : spec.shapes) {
        for (const ShapeTerm& term : shape.value.terms) collect_used(term.node, used);
      }
      for (const auto& dtype : spec.dtypes) collect_used(dtype.value.node, used);
    }
  }
  for (size_t i = 0; i < entry.indices.size(); ++i) {
    if (entry.indices[i].derived || used.contains(static_cast<int>(i))) continue;
    context.report.add(
        "S315", place.at("signature.forall." + entry.indices[i].name, entry.index_specs[i].line),
        fmt::format("no input mentions {}", entry.indices[i].name));
  }
}

void check_plans(EntryContext& context) {
  std::set<std::tuple<std::string, std::string, std::string>> said;
  for (const CaseKey& key : all_cases(context.entry)) {
    std::vector<PlanFault> faults;
    build_plan(context.entry, key, faults);
    for (const PlanFault& fault : faults) {
      if (!said.insert({fault.code, fault.place.field, fault.message}).second) continue;
      context.report.add(fault.code, fault.place, fault.message);
    }
  }
}

}  // namespace

void check_entry(EntryContext& context) {
  const Place place{context.entry.name, "", context.entry.line};
  check_limits(context, place);
  check_order(context, place);
  check_groups(context, place);
  if (!context.report.clean()) return;
  check_effects(context, place);
  check_used(context, place);
  check_plans(context);
}

}  // namespace tileops::spec
