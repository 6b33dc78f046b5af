// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "tileops/core/check.h"

namespace tileops::spec {
namespace {

bool mentions(const ExprNode& node, int index) {
  if (node.op == ExprOp::kIndex && node.slot == index) return true;
  return std::any_of(node.kids.begin(), node.kids.end(),
                     [&](const ExprNode& kid) { return mentions(kid, index); });
}

/// Whether the node is affine in the index: solvable for it when the rest is known.
bool is_affine(const ExprNode& node, int index) {
  if (!mentions(node, index)) return true;
  switch (node.op) {
    case ExprOp::kIndex:
      return true;
    case ExprOp::kNeg:
      return is_affine(node.kids[0], index);
    case ExprOp::kAdd:
    case ExprOp::kSub:
      return is_affine(node.kids[0], index) && is_affine(node.kids[1], index);
    case ExprOp::kMul:
      return (!mentions(node.kids[0], index) && is_affine(node.kids[1], index)) ||
             (!mentions(node.kids[1], index) && is_affine(node.kids[0], index));
    default:
      return false;
  }
}

void collect_indices(const ExprNode& node, std::vector<int>& indices) {
  if (node.op == ExprOp::kIndex &&
      std::find(indices.begin(), indices.end(), node.slot) == indices.end()) {
    indices.push_back(node.slot);
  }
  for (const ExprNode& kid : node.kids) collect_indices(kid, indices);
}

bool has_param(const ExprNode& node) {
  if (node.op == ExprOp::kParam || node.op == ExprOp::kTensor) return true;
  return std::any_of(node.kids.begin(), node.kids.end(), has_param);
}

bool reads_call_tensor(const ExprNode& node) {
  if (node.op == ExprOp::kTensor && node.slot < kConstructionSlot) return true;
  return std::any_of(node.kids.begin(), node.kids.end(), reads_call_tensor);
}

class Builder {
 public:
  Builder(const EntryImpl& entry, const CaseKey& key, std::vector<PlanFault>& faults)
      : entry_(entry), faults_(faults), known_(entry.indices.size()), maybe_(entry.indices.size()) {
    plan_.key = key;
    plan_.origin.assign(entry.indices.size(), -1);
    let_done_.resize(entry.indices.size());
  }

  Plan run() {
    plan_.construction = select_tensors(entry_.construction_specs, "construction_tensors");
    plan_.inputs = select_tensors(entry_.input_specs, "inputs");
    plan_.outputs = select_tensors(entry_.output_specs, "outputs");
    if (!faults_.empty()) return std::move(plan_);
    steps_ = &plan_.construction_steps;
    base_slot_ = kConstructionSlot;
    solve(entry_.construction, plan_.construction);
    require_dtypes(entry_.construction, "signature.construction_tensors.");
    split_rules();
    steps_ = &plan_.steps;
    base_slot_ = 0;
    solve(entry_.inputs, plan_.inputs);
    require_outputs();
    return std::move(plan_);
  }

 private:
  std::vector<TensorPlan> select_tensors(const std::vector<TensorSpec>& specs, const char*) {
    std::vector<TensorPlan> plans;
    for (const TensorSpec& spec : specs) {
      TensorPlan plan;
      plan.shape = select(spec.shapes, plan_.key);
      plan.dtype = select(spec.dtypes, plan_.key);
      plan.requirements = select(spec.requirements, plan_.key);
      if (plan.shape != nullptr) {
        plan.has_segment = plan.shape->segment >= 0;
        plan.rank = static_cast<int16_t>(plan.shape->terms.size() - (plan.has_segment ? 1 : 0));
      }
      plans.push_back(plan);
    }
    return plans;
  }

  struct Pending {
    size_t tensor;
    size_t term;
  };

  void solve(const std::vector<TensorDecl>& decls, const std::vector<TensorPlan>& plans) {
    lets();
    for (const bool optional : {false, true}) {
      std::vector<Pending> pending;
      for (size_t t = 0; t < decls.size(); ++t) {
        if (decls[t].optional != optional || plans[t].shape == nullptr) continue;
        dtype_step(t, *plans[t].dtype, optional);
        for (size_t i = 0; i < plans[t].shape->terms.size(); ++i) pending.push_back({t, i});
      }
      lets();
      settle(pending, plans, optional);
      for (const Pending& each : pending) report_unsolved(decls, plans, each);
    }
  }

  /// Takes terms whose indices are known but for one, until none is left or none can be taken.
  void settle(std::vector<Pending>& pending, const std::vector<TensorPlan>& plans, bool optional) {
    bool progress = true;
    while (progress && !pending.empty()) {
      progress = false;
      std::vector<Pending> rest;
      for (const Pending& each : pending) {
        const ShapeDecl& shape = *plans[each.tensor].shape;
        if (take_term(each, shape, optional)) {
          progress = true;
          lets();
        } else {
          rest.push_back(each);
        }
      }
      pending = std::move(rest);
    }
  }

  bool take_term(const Pending& at, const ShapeDecl& shape, bool optional) {
    const ShapeTerm& term = shape.terms[at.term];
    Step step;
    step.tensor = static_cast<int16_t>(at.tensor);
    step.term = static_cast<int16_t>(at.term);
    const bool after = shape.segment >= 0 && static_cast<int>(at.term) > shape.segment;
    step.dim = static_cast<int16_t>(after ? static_cast<int>(at.term) -
                                                static_cast<int>(shape.terms.size())
                                          : static_cast<int>(at.term));
    step.node = &term.node;
    if (term.index >= 0) {
      step.index = static_cast<int16_t>(term.index);
      step.op = term.segment ? Step::Op::kSegment : Step::Op::kDim;
      if (is_pending_let(term.index)) return false;
      learn(term.index, at.tensor, optional);
      emit(step);
      return true;
    }
    std::vector<int> indices;
    collect_indices(term.node, indices);
    std::erase_if(indices, [&](int index) { return seen(index); });
    if (indices.empty()) {
      step.op = Step::Op::kEqual;
      fold_constant(term, step);
      emit(step);
      return true;
    }
    if (indices.size() > 1 || is_pending_let(indices[0]) || !is_affine(term.node, indices[0])) {
      return false;
    }
    step.index = static_cast<int16_t>(indices[0]);
    affine(term, step);
    learn(indices[0], at.tensor, optional);
    emit(step);
    return true;
  }

  /// Scale and offset of a term that reads nothing but its index are known here.
  static void affine(const ShapeTerm& term, Step& step) {
    std::vector<int> indices;
    collect_indices(term.node, indices);
    step.op = Step::Op::kAffineAt;
    if (indices.size() > 1 || has_param(term.node)) return;
    std::array<IndexValue, kMaxIndices> values{};
    auto& value = values[static_cast<size_t>(step.index)];
    value.kind = IndexValue::Kind::kDim;
    Env env{.params = {}, .indices = values.data()};
    try {
      step.offset = evaluate_int(term.node, env);
      value.dim = 1;
      step.scale = evaluate_int(term.node, env) - step.offset;
    } catch (const EvalFailure&) {
      return;  // kAffineAt fails at the call, with the values that it then has
    }
    if (step.scale > 0) step.op = Step::Op::kAffine;
  }

  static void fold_constant(const ShapeTerm& term, Step& step) {
    std::vector<int> indices;
    collect_indices(term.node, indices);
    if (!indices.empty() || has_param(term.node)) return;
    Env env;
    try {
      step.offset = evaluate_int(term.node, env);
      step.op = Step::Op::kConstant;
    } catch (const EvalFailure&) {
      return;
    }
  }

  void dtype_step(size_t tensor, const DTypeDecl& dtype, bool optional) {
    Step step;
    step.tensor = static_cast<int16_t>(tensor);
    step.node = &dtype.node;
    if (dtype.index >= 0 && !entry_.indices[static_cast<size_t>(dtype.index)].derived) {
      step.op = Step::Op::kDTypeSolve;
      step.index = static_cast<int16_t>(dtype.index);
      step.dtypes = entry_.index_specs[static_cast<size_t>(dtype.index)].dtypes;
      learn(dtype.index, tensor, optional);
    } else if (dtype.dtypes != 0) {
      step.op = Step::Op::kDTypeAllowed;
      step.dtypes = dtype.dtypes;
    } else {
      step.op = Step::Op::kDTypeEqual;
      late_dtypes_.push_back(step);
      return;
    }
    emit(step);
  }

  void learn(int index, size_t tensor, bool optional) {
    const auto i = static_cast<size_t>(index);
    (optional ? maybe_ : known_)[i] = true;
    if (plan_.origin[i] < 0) plan_.origin[i] = base_slot_ + static_cast<int>(tensor);
  }
  bool seen(int index) const {
    return known_[static_cast<size_t>(index)] || maybe_[static_cast<size_t>(index)];
  }
  bool is_pending_let(int index) const {
    return entry_.indices[static_cast<size_t>(index)].derived && !seen(index);
  }

  void lets() {
    for (int slot : entry_.let_order) {
      const auto i = static_cast<size_t>(slot);
      const ExprNode& node = entry_.index_specs[i].let->expr.root;
      if (let_done_[i] || (base_slot_ != 0 && reads_call_tensor(node))) continue;
      std::vector<int> indices;
      collect_indices(node, indices);
      if (!std::all_of(indices.begin(), indices.end(), [&](int each) { return seen(each); }))
        continue;
      const bool sure = std::all_of(indices.begin(), indices.end(),
                                    [&](int each) { return known_[static_cast<size_t>(each)]; });
      (sure ? known_ : maybe_)[i] = true;
      let_done_[i] = true;
      Step step;
      step.op = Step::Op::kLet;
      step.index = static_cast<int16_t>(slot);
      step.node = &node;
      emit(step);
    }
    flush_dtypes();
  }

  void flush_dtypes() {
    std::erase_if(late_dtypes_, [&](const Step& step) {
      std::vector<int> indices;
      collect_indices(*step.node, indices);
      const bool ready =
          std::all_of(indices.begin(), indices.end(), [&](int each) { return seen(each); });
      if (ready) emit(step);
      return ready;
    });
  }

  void emit(const Step& step) { steps_->push_back(step); }

  void split_rules() {
    for (const Formula& rule : entry_.rules) {
      std::vector<int> indices;
      collect_indices(rule.expr.root, indices);
      const bool early = !reads_call_tensor(rule.expr.root) &&
                         std::all_of(indices.begin(), indices.end(),
                                     [&](int each) { return known_[static_cast<size_t>(each)]; });
      (early ? plan_.construction_rules : plan_.rules).push_back(&rule);
    }
  }

  void report_unsolved(const std::vector<TensorDecl>& decls, const std::vector<TensorPlan>& plans,
                       const Pending& at) {
    const ShapeTerm& term = plans[at.tensor].shape->terms[at.term];
    std::vector<int> indices;
    collect_indices(term.node, indices);
    std::erase_if(indices, [&](int index) { return seen(index); });
    std::vector<std::string_view> names;
    names.reserve(indices.size());
    for (int index : indices) names.push_back(entry_.indices[static_cast<size_t>(index)].name);
    const bool several = indices.size() > 1;
    fault(several ? "S309" : "S308",
          base_slot_ == 0 ? "signature.inputs." + decls[at.tensor].name + ".shape"
                          : "signature.construction_tensors." + decls[at.tensor].name + ".shape",
          several ? fmt::format("'{}' has several unknowns ({}) that nothing else solves",
                                term.text, fmt::join(names, ", "))
                  : fmt::format("'{}' cannot be solved for {}", term.text, fmt::join(names, ", ")));
  }

  void require_outputs() {
    for (size_t i = 0; i < entry_.indices.size(); ++i) {
      if (seen(static_cast<int>(i)) || !needed(static_cast<int>(i))) continue;
      fault("S308",
            (entry_.indices[i].derived ? "signature.let." : "signature.forall.") +
                entry_.indices[i].name,
            fmt::format("no tensor solves {}", entry_.indices[i].name));
    }
    require_dtypes(entry_.inputs, "signature.inputs.");
  }

  void require_dtypes(const std::vector<TensorDecl>& decls, const std::string& section) {
    for (const Step& step : late_dtypes_) {
      fault("S308", section + decls[static_cast<size_t>(step.tensor)].name + ".dtype",
            "its dtype cannot be solved");
    }
    late_dtypes_.clear();
  }

  /// Whether an output or a rule reads the index in this case.
  bool needed(int index) const {
    for (const TensorPlan& output : plan_.outputs) {
      if (output.dtype != nullptr && mentions(output.dtype->node, index)) return true;
      if (output.shape == nullptr) continue;
      for (const ShapeTerm& term : output.shape->terms) {
        if (mentions(term.node, index)) return true;
      }
    }
    return std::any_of(plan_.rules.begin(), plan_.rules.end(),
                       [&](const Formula* rule) { return mentions(rule->expr.root, index); });
  }

  void fault(std::string code, std::string field, std::string message) {
    faults_.push_back(
        {std::move(code), {entry_.name, std::move(field), entry_.line}, std::move(message)});
  }

  const EntryImpl& entry_;
  std::vector<PlanFault>& faults_;
  Plan plan_;
  std::vector<Step>* steps_ = nullptr;
  int base_slot_ = 0;
  std::vector<bool> known_;  // solved in every call
  std::vector<bool> maybe_;  // solved where an optional tensor comes
  std::vector<bool> let_done_;
  std::vector<Step> late_dtypes_;
};

}  // namespace

Plan build_plan(const EntryImpl& entry, const CaseKey& key, std::vector<PlanFault>& faults) {
  return Builder(entry, key, faults).run();
}

std::shared_ptr<const Plan> EntryImpl::plan(const CaseKey& key) const {
  std::lock_guard lock(mutex_);
  auto& slot = plans_[key];
  if (slot == nullptr) {
    std::vector<PlanFault> faults;
    auto plan = std::make_shared<Plan>(build_plan(*this, key, faults));
    TILEOPS_CHECK(ErrorKind::kSpec, faults.empty(), "{}: {}: {}", name, faults.front().place.field,
                  faults.front().message);
    slot = std::move(plan);
  }
  return slot;
}

}  // namespace tileops::spec
