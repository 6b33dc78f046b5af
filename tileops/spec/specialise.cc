// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/specialise.h"

#include <algorithm>
#include <optional>

namespace tileops::spec {
namespace {

bool reads_call(const ExprNode& node) {
  switch (node.op) {
    case ExprOp::kIndex:
    case ExprOp::kTensor:
    case ExprOp::kLoop:
    case ExprOp::kTuple:
      return true;  // a tuple is no value of its own
    default:
      break;
  }
  return node.op >= ExprOp::kAll || std::any_of(node.kids.begin(), node.kids.end(), reads_call);
}

std::optional<ExprNode> literal(const Val& val) {
  ExprNode node;
  switch (val.kind) {
    case Val::Kind::kNone:
      node.op = ExprOp::kNone;
      return node;
    case Val::Kind::kBool:
      node.op = ExprOp::kBool;
      node.integer = val.boolean;
      return node;
    case Val::Kind::kInt:
      node.op = ExprOp::kInt;
      node.integer = val.integer;
      return node;
    case Val::Kind::kFloat:
      node.op = ExprOp::kFloat;
      node.real = val.real;
      return node;
    case Val::Kind::kDType:
      node.op = ExprOp::kDType;
      node.dtype = val.dtype;
      return node;
    default:
      return std::nullopt;
  }
}

ExprNode fold(const ExprNode& node, Env& env) {
  if (!reads_call(node)) {
    try {
      if (auto value = literal(evaluate(node, env))) return std::move(*value);
    } catch (const EvalFailure&) {
      return node;  // it fails at the call too, if it is reached
    }
    return node;
  }
  if (node.op == ExprOp::kIf) {
    const ExprNode condition = fold(node.kids[1], env);
    if (condition.op == ExprOp::kBool) return fold(node.kids[condition.integer != 0 ? 0 : 2], env);
  }
  ExprNode folded = node;
  for (ExprNode& kid : folded.kids) kid = fold(kid, env);
  return folded;
}

/// Terms whose parameters are numbers now need no evaluation.
void simplify(Step& step, const ExprNode& node) {
  if (step.op == Step::Op::kEqual && node.op == ExprOp::kInt) {
    step.op = Step::Op::kConstant;
    step.offset = node.integer;
  }
}

}  // namespace

SpecialPlan specialise(const EntryImpl& entry, std::shared_ptr<const Plan> plan, Env& env) {
  SpecialPlan special;
  for (Step step : plan->steps) {
    if (step.node != nullptr) {
      special.nodes.push_back(fold(*step.node, env));
      step.node = &special.nodes.back();
      simplify(step, *step.node);
    }
    special.steps.push_back(step);
  }
  for (const TensorPlan& output : plan->outputs) {
    ShapeDecl& shape = special.output_shapes.emplace_back(*output.shape);
    for (ShapeTerm& term : shape.terms) {
      term.node = fold(term.node, env);
      term.index = term.node.op == ExprOp::kIndex ? term.node.slot : -1;
    }
    DTypeDecl& dtype = special.output_dtypes.emplace_back(*output.dtype);
    if (dtype.dtypes != 0) continue;
    dtype.node = fold(dtype.node, env);
    dtype.index = dtype.node.op == ExprOp::kIndex ? dtype.node.slot : -1;
    if (dtype.node.op == ExprOp::kDType) dtype.dtypes = dtype_bit(dtype.node.dtype);
  }
  for (const TensorSpec& output : entry.output_specs) {
    auto& presence = special.presence.emplace_back();
    if (output.when) presence = fold(output.when->expr.root, env);
  }
  for (const Formula* rule : plan->rules) special.rules.push_back(fold(rule->expr.root, env));
  special.plan = std::move(plan);
  return special;
}

}  // namespace tileops::spec
