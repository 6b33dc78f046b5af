// SPDX-License-Identifier: Apache-2.0
// Running a unification plan.
#include <algorithm>

#include "tileops/core/check.h"
#include "tileops/spec/signature_plan.h"

namespace tileops::spec {
namespace {

void collect_named(const ExprNode& node, std::vector<const ExprNode*>& named) {
  const bool leaf = node.op == ExprOp::kIndex || node.op == ExprOp::kParam;
  if (leaf || (node.op == ExprOp::kField && !path_of(node).empty())) {
    const std::string path = path_of(node);
    if (std::none_of(named.begin(), named.end(),
                     [&](const ExprNode* each) { return path_of(*each) == path; })) {
      named.push_back(&node);
    }
    return;
  }
  for (const ExprNode& kid : node.kids) collect_named(kid, named);
}

bool all_known(const ExprNode& node, const IndexValue* indices) {
  if (node.op == ExprOp::kIndex) return indices[node.slot].kind != IndexValue::Kind::kUnknown;
  return std::all_of(node.kids.begin(), node.kids.end(),
                     [&](const ExprNode& kid) { return all_known(kid, indices); });
}

std::string value_text(const Val& val) {
  return val.kind == Val::Kind::kSeq ? to_string(*val.seq) : to_string(to_value(val));
}

std::string origin_text(const EntryImpl& entry, const Plan& plan, int index) {
  const auto i = static_cast<size_t>(index);
  if (entry.indices[i].derived) {
    return fmt::format(" (let {})", entry.index_specs[i].let->expr.text);
  }
  const int origin = plan.origin[i];
  if (origin < 0) return "";
  const std::string& name =
      origin >= kConstructionSlot
          ? entry.construction[static_cast<size_t>(origin - kConstructionSlot)].name
          : entry.inputs[static_cast<size_t>(origin)].name;
  return fmt::format(" (from {})", name);
}

}  // namespace

std::string known_text(const EntryImpl& entry, const Plan& plan, const ExprNode& node, Env& env) {
  std::vector<const ExprNode*> named;
  collect_named(node, named);
  std::string text;
  for (const ExprNode* each : named) {
    std::string value;
    try {
      value = value_text(evaluate(*each, env));
    } catch (const EvalFailure&) {
      continue;  // not known yet: nothing to show
    }
    text += fmt::format("{}{} = {}{}", text.empty() ? " with " : ", ", path_of(*each), value,
                        each->op == ExprOp::kIndex ? origin_text(entry, plan, each->slot) : "");
  }
  return text;
}

std::string shape_text(std::string_view tensor, const Dims& shape) {
  return fmt::format("{} has shape {}", tensor, to_string(shape));
}

void raise_failure(const EntryImpl& entry, const std::string& field, const std::string& expression,
                   const EvalFailure& failure) {
  raise(failure.overflow ? ErrorKind::kShape : ErrorKind::kSpec, "{}: {}: '{}' failed: {}",
        entry.name, field, expression, failure.what());
}

void StepRunner::ranks() const {
  for (size_t t = 0; t < tensors_.size(); ++t) {
    if (!facts_[t].present || tensors_[t].shape == nullptr) continue;
    const int rank = facts_[t].shape.size();
    const bool fits = tensors_[t].has_segment ? rank >= tensors_[t].rank : rank == tensors_[t].rank;
    TILEOPS_CHECK(ErrorKind::kShape, fits, "{}: {}; the spec says {}", entry_.name,
                  shape_text(decls_[t].name, facts_[t].shape), tensors_[t].shape->text);
  }
}

void StepRunner::run(std::span<const Step> steps) {
  env_.indices = indices_;
  for (const Step& step : steps) {
    if (step.tensor >= 0 && !facts_[step.tensor].present) continue;
    try {
      take(step);
    } catch (const EvalFailure& failure) {
      if (step.op == Step::Op::kLet) {
        const auto i = static_cast<size_t>(step.index);
        raise_failure(entry_, "signature.let." + entry_.indices[i].name,
                      entry_.index_specs[i].let->expr.text, failure);
      }
      const auto t = static_cast<size_t>(step.tensor);
      const bool dtype = step.op == Step::Op::kDTypeEqual;
      raise_failure(entry_, fmt::format("{}.{}", decls_[t].name, dtype ? "dtype" : "shape"),
                    dtype ? tensors_[t].dtype->text : tensors_[t].shape->text, failure);
    }
  }
}

int64_t StepRunner::size_at(const Step& step) const {
  const Shape& shape = facts_[step.tensor].shape;
  return shape[step.dim < 0 ? shape.size() + step.dim : step.dim];
}

void StepRunner::take(const Step& step) {
  switch (step.op) {
    case Step::Op::kDTypeAllowed:
    case Step::Op::kDTypeSolve:
    case Step::Op::kDTypeEqual:
      return dtype(step);
    case Step::Op::kDim:
      return dim(step, size_at(step));
    case Step::Op::kAffine:
      return affine(step, size_at(step), step.scale, step.offset);
    case Step::Op::kAffineAt: {
      IndexValue& value = indices_[step.index];
      const IndexValue before = value;
      value.kind = IndexValue::Kind::kDim;
      value.dim = 0;
      const int64_t offset = evaluate_int(*step.node, env_);
      value.dim = 1;
      const int64_t scale = evaluate_int(*step.node, env_) - offset;
      value = before;
      return affine(step, size_at(step), scale, offset);
    }
    case Step::Op::kConstant:
      if (size_at(step) != step.offset) wrong_shape(step);
      return;
    case Step::Op::kEqual:
      if (size_at(step) != evaluate_int(*step.node, env_)) wrong_shape(step);
      return;
    case Step::Op::kSegment:
      return segment(step);
    case Step::Op::kLet:
      return let(step);
  }
}

void StepRunner::dtype(const Step& step) {
  const DType found = facts_[step.tensor].dtype;
  if (step.op == Step::Op::kDTypeEqual) {
    const Val wanted = evaluate(*step.node, env_);
    if (wanted.kind != Val::Kind::kDType || wanted.dtype != found) wrong_dtype(step);
    return;
  }
  if ((step.dtypes & dtype_bit(found)) == 0) wrong_dtype(step);
  if (step.op == Step::Op::kDTypeAllowed) return;
  IndexValue& index = indices_[step.index];
  if (index.kind == IndexValue::Kind::kUnknown) {
    index.kind = IndexValue::Kind::kDType;
    index.dtype = found;
  } else if (index.dtype != found) {
    wrong_dtype(step);
  }
}

void StepRunner::dim(const Step& step, int64_t size) {
  IndexValue& index = indices_[step.index];
  if (index.kind == IndexValue::Kind::kUnknown) {
    index.kind = IndexValue::Kind::kDim;
    index.dim = size;
  } else if (index.dim != size) {
    wrong_shape(step);
  }
}

void StepRunner::affine(const Step& step, int64_t size, int64_t scale, int64_t offset) {
  IndexValue& index = indices_[step.index];
  if (index.kind != IndexValue::Kind::kUnknown) {
    if (size != evaluate_int(*step.node, env_)) wrong_shape(step);
    return;
  }
  if (scale == 0) unsolvable(step, size);
  const int64_t rest = size - offset;  // both are sizes of this call, far from overflow
  if (rest % scale != 0 || rest / scale < 0) unsolvable(step, size);
  index.kind = IndexValue::Kind::kDim;
  index.dim = rest / scale;
}

void StepRunner::segment(const Step& step) {
  const Shape& shape = facts_[step.tensor].shape;
  const int count = shape.size() - tensors_[static_cast<size_t>(step.tensor)].rank;
  const Dims between(std::span(shape.begin() + step.dim, static_cast<size_t>(count)));
  IndexValue& index = indices_[step.index];
  if (index.kind == IndexValue::Kind::kUnknown) {
    index.kind = IndexValue::Kind::kSeq;
    index.seq = between;
  } else if (!(index.seq == between)) {
    wrong_shape(step);
  }
}

void StepRunner::let(const Step& step) {
  IndexValue& index = indices_[step.index];
  if (!all_known(*step.node, indices_)) return;  // it reads what an absent tensor would tell
  const Val val = evaluate(*step.node, env_);
  index.kind = entry_.indices[static_cast<size_t>(step.index)].kind;
  if (val.kind == Val::Kind::kInt) {
    index.dim = val.integer;
  } else if (val.kind == Val::Kind::kDType) {
    index.dtype = val.dtype;
  } else if (val.kind == Val::Kind::kSeq) {
    index.seq = *val.seq;
  } else if (val.kind == Val::Kind::kList) {
    index.seq = {};
    for (const Value& each : *val.list) {
      if (each.as_int() == nullptr || index.seq.size() == kMaxRank) {
        throw EvalFailure("it is no shape");
      }
      index.seq.push_back(*each.as_int());
    }
  }
}

void StepRunner::rules(std::span<const Formula* const> rules, const ExprNode* nodes) {
  const bool construction = nodes == nullptr;
  for (size_t i = 0; i < rules.size(); ++i) {
    const Formula* rule = rules[i];
    const ExprNode& node = construction ? rule->expr.root : nodes[i];
    if (!all_known(node, indices_)) continue;  // it speaks of a tensor that is absent
    try {
      if (evaluate_bool(node, env_)) continue;
    } catch (const EvalFailure& failure) {
      raise_failure(entry_, rule->field, rule->expr.text, failure);
    }
    raise(construction ? ErrorKind::kValue : ErrorKind::kShape, "{}: the spec says {}; it fails{}",
          entry_.name, rule->expr.text, known_text(entry_, plan_, rule->expr.root, env_));
  }
}

void StepRunner::wrong_shape(const Step& step) const {
  const auto t = static_cast<size_t>(step.tensor);
  const ShapeDecl& shape = *tensors_[t].shape;
  raise(ErrorKind::kShape, "{}: {}; the spec says {}{}", entry_.name,
        shape_text(decls_[t].name, facts_[t].shape), shape.text,
        known_text(entry_, plan_, shape.terms[static_cast<size_t>(step.term)].node, env_));
}

void StepRunner::unsolvable(const Step& step, int64_t size) const {
  const auto t = static_cast<size_t>(step.tensor);
  const ShapeDecl& shape = *tensors_[t].shape;
  const ShapeTerm& term = shape.terms[static_cast<size_t>(step.term)];
  raise(ErrorKind::kShape, "{}: {}; the spec says {}, and {} is no {}{}", entry_.name,
        shape_text(decls_[t].name, facts_[t].shape), shape.text, size, term.text,
        known_text(entry_, plan_, term.node, env_));
}

void StepRunner::wrong_dtype(const Step& step) const {
  const auto t = static_cast<size_t>(step.tensor);
  const DTypeDecl& dtype = *tensors_[t].dtype;
  std::string says = dtype.text;
  if (step.op == Step::Op::kDTypeSolve && indices_[step.index].kind == IndexValue::Kind::kUnknown) {
    says += " in " + dtype_union_text(step.dtypes);
  } else if (step.op != Step::Op::kDTypeAllowed) {
    says += known_text(entry_, plan_, dtype.node, env_);
  }
  raise(ErrorKind::kDType, "{}: {} has dtype {}; the spec says {}", entry_.name, decls_[t].name,
        dtype_name(facts_[t].dtype), says);
}

}  // namespace tileops::spec
