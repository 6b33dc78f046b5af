// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/signature.h"

#include <algorithm>
#include <map>

#include "tileops/core/check.h"
#include "tileops/spec/effects.h"
#include "tileops/spec/params.h"
#include "tileops/spec/signature_plan.h"

namespace tileops::spec {
namespace {

constexpr size_t kMaxDecidingInputs = 6;

std::string names_text(const EntryImpl& entry) {
  std::vector<std::string_view> names;
  for (const ParamDecl& param : entry.params) names.push_back(param.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string label_of(const Val& val) {
  switch (val.kind) {
    case Val::Kind::kBool:
      return val.boolean ? "true" : "false";
    case Val::Kind::kString:
      return std::string(val.text());
    case Val::Kind::kSum:
      return val.sum->constructor;
    default:
      return "None";
  }
}

/// The label that a discriminant has before a call; -1 where it does not apply to these parameters.
int label_index(const Discriminant& discriminant, Env& env) {
  try {
    const auto& labels = discriminant.labels;
    const auto it =
        std::find(labels.begin(), labels.end(), label_of(evaluate(discriminant.node, env)));
    return it == labels.end() ? -1 : static_cast<int>(it - labels.begin());
  } catch (const EvalFailure&) {
    return -1;  // a field of another constructor
  }
}

std::vector<std::vector<int>> groups_of(const EntryImpl& entry) {
  std::map<std::string, std::vector<int>> groups;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const std::string& group = entry.input_specs[i].group;
    if (!group.empty()) groups[group].push_back(static_cast<int>(i));
  }
  std::vector<std::vector<int>> lists;
  lists.reserve(groups.size());
  for (auto& [name, members] : groups) lists.push_back(std::move(members));
  return lists;
}

TensorFacts construction_facts(const EntryImpl& entry, size_t i, const Tensor& tensor) {
  TensorFacts facts;
  const TensorDecl& decl = entry.construction[i];
  TILEOPS_CHECK(ErrorKind::kType, tensor.defined() || decl.optional,
                "{}: {} is absent; the spec requires it at construction", entry.name, decl.name);
  if (!tensor.defined()) return facts;
  facts = {true, tensor.dtype(), tensor.device(), tensor.shape(), tensor.strides()};
  TILEOPS_CHECK(ErrorKind::kDevice, !decl.on_cpu || tensor.device().type != DeviceType::kCUDA,
                "{}: {} is on {}; the spec says cpu", entry.name, decl.name,
                to_string(tensor.device()));
  TILEOPS_CHECK(ErrorKind::kShape, !decl.contiguous || tensor.is_contiguous(),
                "{}: {} has strides {}; the spec says contiguous", entry.name, decl.name,
                to_string(tensor.strides()));
  return facts;
}

/// The plans of every combination of the inputs whose presence decides.
void choose_cases(const EntryImpl& impl, Env& env, Signature::Plan& plan) {
  CaseKey key;
  std::vector<size_t> deciding;
  for (const Discriminant& discriminant : impl.discriminants) {
    if (discriminant.input >= 0) deciding.push_back(key.size());
    key.push_back(discriminant.input >= 0 ? 0 : label_index(discriminant, env));
  }
  TILEOPS_CHECK(ErrorKind::kSpec, deciding.size() <= kMaxDecidingInputs,
                "{}: the presence of more than {} inputs chooses cases", impl.name,
                kMaxDecidingInputs);
  for (size_t d : deciding) plan.deciding_inputs.push_back(impl.discriminants[d].input);
  for (size_t bits = 0; bits < size_t{1} << deciding.size(); ++bits) {
    for (size_t i = 0; i < deciding.size(); ++i) key[deciding[i]] = (bits >> i & 1u) != 0 ? 1 : 0;
    plan.cases.push_back(specialise(impl, impl.plan(key), env));
  }
}

void bind_effects(const Entry& entry, Signature::Plan& plan) {
  const EntryImpl& impl = entry.impl();
  plan.groups = groups_of(impl);
  for (size_t j = 0; j < impl.outputs.size(); ++j) {
    if (impl.outputs[j].buffer_out) plan.buffer_outputs.push_back(static_cast<int>(j));
    if (impl.outputs[j].optional) plan.optional_outputs.push_back(static_cast<int>(j));
  }
  for (size_t i = 0; i < impl.inputs.size(); ++i) {
    if (impl.inputs[i].mutated) plan.mutated_inputs.push_back(static_cast<int>(i));
  }
  for (EffectBranch& branch : effect_branches(entry))
    plan.branches.push_back(std::move(branch.name));
}

}  // namespace

Params checked_params(const Entry& of, const Params& given) {
  const EntryImpl& entry = of.impl();
  for (const auto& [name, unused] : given) {
    const bool known =
        std::any_of(entry.params.begin(), entry.params.end(),
                    [&name = name](const ParamDecl& param) { return param.name == name; });
    TILEOPS_CHECK(ErrorKind::kType, known, "{}: there is no parameter {}; its parameters: {}",
                  entry.name, name, names_text(entry));
  }
  Params params;
  for (size_t i = 0; i < entry.params.size(); ++i) {
    const ParamDecl& decl = entry.params[i];
    const Value* value = given.find(decl.name);
    TILEOPS_CHECK(ErrorKind::kType, value != nullptr || decl.default_value,
                  "{}: parameter {} is missing; the spec says {}", entry.name, decl.name,
                  decl.type_text);
    Normalized normal =
        normalize(entry.param_types[i], value != nullptr ? *value : *decl.default_value);
    TILEOPS_CHECK(normal.wrong_type ? ErrorKind::kType : ErrorKind::kValue, normal.value,
                  "{}: parameter {} {}", entry.name, decl.name, normal.fault);
    params.set(decl.name, std::move(*normal.value));
  }
  return params;
}

Signature::~Signature() = default;

Signature::Signature(std::shared_ptr<const Entry> entry, const Params& params,
                     std::span<const Tensor> construction_tensors)
    : entry_(std::move(entry)) {
  const EntryImpl& impl = entry_->impl();
  params_ = checked_params(*entry_, params);
  auto plan = std::make_unique<Plan>();
  for (const auto& [name, value] : params_) plan->params.push_back(view_of(value));
  TILEOPS_CHECK(ErrorKind::kType, construction_tensors.size() == impl.construction.size(),
                "{}: takes {} tensors at construction, got {}", impl.name, impl.construction.size(),
                construction_tensors.size());
  for (size_t i = 0; i < impl.construction.size(); ++i) {
    plan->construction.push_back(construction_facts(impl, i, construction_tensors[i]));
  }

  Env env = plan->env();
  choose_cases(impl, env, *plan);
  const spec::Plan& first = *plan->cases.front().plan;
  StepRunner runner(impl, first, impl.construction, first.construction, plan->construction.data(),
                    plan->base.data(), env);
  runner.ranks();
  runner.run(first.construction_steps);
  runner.rules(first.construction_rules, nullptr);

  bind_effects(*entry_, *plan);
  plan_ = std::move(plan);
}

std::string Signature::fingerprint() const {
  const size_t hash = hash_of(entry_->impl().signature_text, to_string(params_));
  return fmt::format("{:08x}", static_cast<uint32_t>(hash));
}

Value Signature::value_of(const CallFacts& facts, std::string_view name) const {
  if (const Value* value = params_.find(name)) return *value;
  const int slot = entry_->index_slot(name);
  TILEOPS_CHECK(ErrorKind::kValue, slot >= 0, "{}: nothing is named {}", entry_->name(), name);
  return to_value(view_of(facts.indices[static_cast<size_t>(slot)]));
}

}  // namespace tileops::spec
