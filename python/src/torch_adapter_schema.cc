// SPDX-License-Identifier: Apache-2.0
#include "torch_adapter_schema.h"

#include <algorithm>

#include "tileops/op/trace.h"

namespace tileops::torch_adapter {
namespace {

std::string operator_name(const spec::Entry& entry, const spec::EffectBranch& branch) {
  constexpr std::string_view kOurs = "tileops::";  // the Python TileOPs' in PyTorch
  const std::string name = node_name(entry, branch.name);
  return name.starts_with(kOurs) ? "tileops_cpp::" + name.substr(kOurs.size()) : name;
}

bool contains(const std::vector<int>& slots, size_t slot) {
  return std::find(slots.begin(), slots.end(), static_cast<int>(slot)) != slots.end();
}

}  // namespace

std::vector<Operator> operators_of(const std::shared_ptr<const spec::Entry>& entry) {
  std::vector<Operator> operators;
  for (spec::EffectBranch& branch : spec::effect_branches(*entry)) {
    if (!spec::is_possible(branch)) continue;
    Operator op{.entry = entry,
                .name = operator_name(*entry, branch),
                .fresh = spec::fresh_outputs(*entry, branch)};
    for (size_t j = 0; j < entry->outputs().size(); ++j) {
      if (!entry->outputs()[j].buffer_out) continue;
      if (contains(branch.outs, j)) op.out_slots.push_back(op.num_outs);
      ++op.num_outs;
    }
    op.branch = std::move(branch);
    operators.push_back(std::move(op));
  }
  return operators;
}

std::string schema_of(const Operator& op) {
  const auto inputs = op.entry->inputs();
  size_t num_required = inputs.size();  // up to the last that must come
  while (num_required > 0 && inputs[num_required - 1].optional) --num_required;
  int num_written = 0;
  const auto written = [&] { return "(w" + std::to_string(num_written++) + "!)"; };
  std::string schema = op.name.substr(op.name.find("::") + 2) + "(str key";
  for (size_t i = 0; i < inputs.size(); ++i) {
    schema += ", Tensor" + (contains(op.branch.mutated, i) ? written() : "") +
              (inputs[i].optional ? "? " : " ") + inputs[i].name +
              (i >= num_required ? "=None" : "");
  }
  if (!op.branch.outs.empty()) schema += ", *";
  for (int j : op.branch.outs) {
    schema += ", Tensor" + written() + " " + op.entry->outputs()[static_cast<size_t>(j)].name;
  }
  std::string returns;
  for (size_t i = 0; i < op.fresh.size(); ++i) returns += i == 0 ? "Tensor" : ", Tensor";
  return schema + ") -> " + (op.fresh.size() == 1 ? returns : "(" + returns + ")");
}

}  // namespace tileops::torch_adapter
