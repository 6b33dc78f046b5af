// SPDX-License-Identifier: Apache-2.0
// The functions of the language.
#include <fmt/format.h>

#include <cmath>

#include "tileops/spec/expr_value.h"

namespace tileops::spec {
namespace {

using Kind = Val::Kind;

int64_t product(const Val& seq) {
  int64_t result = 1;
  if (seq.kind == Kind::kSeq) {
    for (int64_t size : *seq.seq) result = multiply(result, size);
  } else if (seq.kind == Kind::kList) {
    for (const Value& each : *seq.list) result = multiply(result, int_of(view_of(each)));
  } else {
    throw EvalFailure("a shape or a list is needed");
  }
  return result;
}

int64_t length(const Val& seq) {
  if (seq.kind == Kind::kSeq) return seq.seq->size();
  if (seq.kind == Kind::kList) return static_cast<int64_t>(seq.list->size());
  throw EvalFailure("a shape or a list is needed");
}

Val extreme(const ExprNode& node, Env& env, bool largest) {
  Val best = evaluate(node.kids[0], env);
  real_of(best);
  for (size_t i = 1; i < node.kids.size(); ++i) {
    const Val next = evaluate(node.kids[i], env);
    if (ordered(largest ? ExprOp::kGt : ExprOp::kLt, next, best)) best = next;
  }
  return best;
}

int64_t numel_of(const TensorFacts& facts) {
  int64_t count = 1;
  for (int64_t size : facts.shape) count = multiply(count, size);
  return facts.present ? count : 0;
}

int64_t size_of(const ExprNode& node, Env& env) {
  const TensorFacts& facts = facts_of(evaluate(node.kids[0], env), env);
  int64_t dim = evaluate_int(node.kids[1], env);
  if (dim < 0) dim += facts.shape.size();
  if (!facts.present || dim < 0 || dim >= facts.shape.size()) {
    throw EvalFailure(fmt::format("there is no dimension {}", dim));
  }
  return facts.shape[static_cast<int>(dim)];
}

constexpr PrimitiveInfo kPrimitives[] = {
    {"abs", Primitive::kAbs, 1, 1, false},
    {"min", Primitive::kMin, 1, 8, false},
    {"max", Primitive::kMax, 1, 8, false},
    {"ceil_div", Primitive::kCeilDiv, 2, 2, false},
    {"align_up", Primitive::kAlignUp, 2, 2, false},
    {"sqrt", Primitive::kSqrt, 1, 1, false},
    {"is_finite", Primitive::kIsFinite, 1, 1, false},
    {"len", Primitive::kLen, 1, 1, false},
    {"prod", Primitive::kProd, 1, 1, false},
    {"itemsize", Primitive::kItemsize, 1, 1, false},
    {"rank", Primitive::kRank, 1, 1, false},
    {"numel", Primitive::kNumel, 1, 1, false},
    {"size", Primitive::kSize, 2, 2, false},
    {"bytes", Primitive::kBytes, 1, 1, false},
    {"valid_rows", Primitive::kValidRows, 3, 3, true},
    {"experts_hit", Primitive::kExpertsHit, 3, 3, true},
    {"distinct", Primitive::kDistinct, 2, 2, true},
    {"valid_ids", Primitive::kValidIds, 2, 2, true},
    {"staged", Primitive::kStaged, 3, 3, true},
};

}  // namespace

const TensorFacts& facts_of(const Val& tensor, const Env& env) {
  if (tensor.kind != Kind::kTensor) throw EvalFailure("a tensor is needed");
  if (tensor.tensor >= kConstructionSlot) {
    const auto slot = static_cast<size_t>(tensor.tensor - kConstructionSlot);
    if (slot < env.construction.size()) return env.construction[slot];
  } else if (env.inputs != nullptr) {
    return env.inputs[tensor.tensor];
  }
  throw EvalFailure("the tensors of a call are not known here");
}

std::span<const PrimitiveInfo> primitives() { return kPrimitives; }

const PrimitiveInfo* find_primitive(std::string_view name) {
  for (const PrimitiveInfo& info : kPrimitives) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

Val evaluate_primitive(const ExprNode& node, Env& env) {
  const auto arg = [&](size_t i) { return evaluate(node.kids[i], env); };
  switch (static_cast<Primitive>(node.slot)) {
    case Primitive::kAbs: {
      const Val x = arg(0);
      if (x.kind != Kind::kInt) return of_real(std::fabs(real_of(x)));
      return of_int(x.integer < 0 ? subtract(0, x.integer) : x.integer);
    }
    case Primitive::kMin:
      return extreme(node, env, false);
    case Primitive::kMax:
      return extreme(node, env, true);
    case Primitive::kCeilDiv:
      return of_int(ceil_div(int_of(arg(0)), int_of(arg(1))));
    case Primitive::kAlignUp: {
      const int64_t unit = int_of(arg(1));
      return of_int(multiply(ceil_div(int_of(arg(0)), unit), unit));
    }
    case Primitive::kSqrt:
      return of_real(std::sqrt(real_of(arg(0))));
    case Primitive::kIsFinite:
      return of_bool(std::isfinite(real_of(arg(0))));
    case Primitive::kLen:
      return of_int(length(arg(0)));
    case Primitive::kProd:
      return of_int(product(arg(0)));
    case Primitive::kItemsize: {
      const Val dtype = arg(0);
      if (dtype.kind != Kind::kDType) throw EvalFailure("itemsize() needs a dtype");
      return of_int(dtype_bytes(dtype.dtype));
    }
    case Primitive::kRank:
      return of_int(facts_of(arg(0), env).shape.size());
    case Primitive::kNumel:
      return of_int(numel_of(facts_of(arg(0), env)));
    case Primitive::kSize:
      return of_int(size_of(node, env));
    case Primitive::kBytes: {
      const TensorFacts& facts = facts_of(arg(0), env);
      return of_int(multiply(numel_of(facts), dtype_bytes(facts.dtype)));
    }
    default:
      return evaluate_roofline_builtin(node, env);
  }
}

}  // namespace tileops::spec
