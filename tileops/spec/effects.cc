// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/effects.h"

#include <algorithm>

#include "tileops/core/check.h"
#include "tileops/spec/entry_impl.h"

namespace tileops::spec {
namespace {

constexpr size_t kMaxEffects = 10;

/// One thing that a call may do.
struct Effect {
  std::string name;
  std::vector<int> EffectBranch::*kind;
  int slot;
};

std::string effect_name(std::string_view effect, std::string_view tensor, size_t count) {
  return count == 1 ? std::string(effect) : fmt::format("{}_{}", effect, tensor);
}

template <class Has>
std::vector<int> slots_with(std::span<const TensorDecl> decls, Has has) {
  std::vector<int> slots;
  for (size_t i = 0; i < decls.size(); ++i) {
    if (has(decls[i])) slots.push_back(static_cast<int>(i));
  }
  return slots;
}

/// In the order of their names in a branch's.
std::vector<Effect> effects_of(const Entry& entry) {
  const auto outputs = entry.outputs(), inputs = entry.inputs();
  const auto buffers = slots_with(outputs, [](const TensorDecl& d) { return d.buffer_out; });
  const auto mutated = slots_with(inputs, [](const TensorDecl& d) { return d.mutated; });
  std::vector<Effect> effects;
  for (int j : buffers) {
    const std::string& name = outputs[static_cast<size_t>(j)].name;
    effects.push_back({effect_name("out", name, buffers.size()), &EffectBranch::outs, j});
  }
  for (int i : mutated) {
    const std::string& name = inputs[static_cast<size_t>(i)].name;
    effects.push_back({effect_name("mutated", name, mutated.size()), &EffectBranch::mutated, i});
  }
  for (int j : slots_with(outputs, [](const TensorDecl& d) { return d.optional; })) {
    effects.push_back({"no_" + outputs[static_cast<size_t>(j)].name, &EffectBranch::omitted, j});
  }
  TILEOPS_CHECK(ErrorKind::kSpec, effects.size() <= kMaxEffects, "{}: more than {} effects",
                entry.name(), kMaxEffects);
  return effects;
}

}  // namespace

std::vector<EffectBranch> effect_branches(const Entry& entry) {
  const std::vector<Effect> effects = effects_of(entry);
  std::vector<EffectBranch> branches(size_t{1} << effects.size());
  for (size_t bits = 0; bits < branches.size(); ++bits) {
    for (size_t i = 0; i < effects.size(); ++i) {
      if ((bits >> i & 1u) == 0) continue;
      EffectBranch& branch = branches[bits];
      branch.name += (branch.name.empty() ? "" : "_") + effects[i].name;
      (branch.*effects[i].kind).push_back(effects[i].slot);
    }
  }
  return branches;
}

bool is_possible(const EffectBranch& branch) {
  return std::find_first_of(branch.outs.begin(), branch.outs.end(), branch.omitted.begin(),
                            branch.omitted.end()) == branch.outs.end();
}

std::vector<int> fresh_outputs(const Entry& entry, const EffectBranch& branch) {
  const auto has = [](const std::vector<int>& slots, int slot) {
    return std::find(slots.begin(), slots.end(), slot) != slots.end();
  };
  std::vector<int> fresh;
  for (int j = 0; j < static_cast<int>(entry.outputs().size()); ++j) {
    const bool is_input = entry.impl().output_specs[static_cast<size_t>(j)].alias >= 0;
    if (!is_input && !has(branch.outs, j) && !has(branch.omitted, j)) fresh.push_back(j);
  }
  return fresh;
}

}  // namespace tileops::spec
