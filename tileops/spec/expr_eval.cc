// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "tileops/spec/expr_value.h"

namespace tileops::spec {
namespace {

using Kind = Val::Kind;

bool equal_nodes(const ExprNode& a, const ExprNode& b, Env& env) {
  if (a.op != ExprOp::kTuple || b.op != ExprOp::kTuple) {
    return equal(evaluate(a, env), evaluate(b, env));
  }
  if (a.kids.size() != b.kids.size()) return false;
  for (size_t i = 0; i < a.kids.size(); ++i) {
    if (!equal_nodes(a.kids[i], b.kids[i], env)) return false;
  }
  return true;
}

bool contains(const ExprNode& item, const ExprNode& where, Env& env) {
  if (where.op == ExprOp::kTuple) {
    return std::any_of(where.kids.begin(), where.kids.end(),
                       [&](const ExprNode& kid) { return equal_nodes(item, kid, env); });
  }
  const Val value = evaluate(item, env);
  const Val range = evaluate(where, env);
  if (range.kind == Kind::kSeq) {
    return std::find(range.seq->begin(), range.seq->end(), int_of(value)) != range.seq->end();
  }
  if (range.kind != Kind::kList) throw EvalFailure("'in' needs a tuple, a list or a shape");
  return std::any_of(range.list->begin(), range.list->end(),
                     [&](const Value& each) { return equal(value, view_of(each)); });
}

Val element(const Val& tensor, const ExprNode& node, Env& env) {
  const auto slot = static_cast<size_t>(tensor.tensor);
  if (slot >= env.contents.size() || !env.contents[slot].defined()) {
    throw EvalFailure("contents cannot be read here");
  }
  const Tensor& x = env.contents[slot];
  if (static_cast<int>(node.kids.size()) - 1 != x.rank()) {
    throw EvalFailure(
        fmt::format("{} subscripts for {} dimensions", node.kids.size() - 1, x.rank()));
  }
  int64_t offset = 0;
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t at = evaluate_int(node.kids[static_cast<size_t>(d) + 1], env);
    if (at < 0 || at >= x.shape()[d]) {
      throw EvalFailure(fmt::format("subscript {} is outside [0, {})", at, x.shape()[d]));
    }
    offset += at * x.strides()[d];
  }
  switch (x.dtype()) {
    case DType::kI32:
      return of_int(x.data_as<int32_t>()[offset]);
    case DType::kI64:
      return of_int(x.data_as<int64_t>()[offset]);
    case DType::kBool:
      return of_bool(x.data_as<uint8_t>()[offset] != 0);
    default:
      break;
  }
  const double value =
      load_element(x.dtype(), x.data_as<std::byte>() + offset * dtype_bytes(x.dtype()));
  return is_floating(x.dtype()) ? of_real(value) : of_int(static_cast<int64_t>(value));
}

Val subscript(const ExprNode& node, Env& env) {
  const Val base = evaluate(node.kids[0], env);
  if (base.kind == Kind::kTensor) return element(base, node, env);
  int64_t at = evaluate_int(node.kids[1], env);
  const int64_t size = base.kind == Kind::kSeq    ? base.seq->size()
                       : base.kind == Kind::kList ? static_cast<int64_t>(base.list->size())
                                                  : 0;
  if (at < 0) at += size;
  if (at < 0 || at >= size) throw EvalFailure(fmt::format("subscript is outside [0, {})", size));
  return base.kind == Kind::kSeq ? of_int((*base.seq)[static_cast<int>(at)])
                                 : view_of((*base.list)[static_cast<size_t>(at)]);
}

Val field(const ExprNode& node, Env& env) {
  const Val base = evaluate(node.kids[0], env);
  if (base.kind != Kind::kSum) throw EvalFailure(fmt::format("no field '{}' here", node.text));
  const Value* value = base.sum->field(node.text);
  if (value == nullptr) {
    throw EvalFailure(fmt::format("{} has no field '{}'", base.sum->constructor, node.text));
  }
  return view_of(*value);
}

bool present(const ExprNode& node, Env& env) {
  const Val val = evaluate(node.kids[0], env);
  return val.kind == Kind::kTensor ? facts_of(val, env).present : val.kind != Kind::kNone;
}

/// Folds the bodies of a comprehension; a fold of `all` and `any` stops where it is decided, with
/// the loop variables left at the deciding iteration.
struct Fold {
  ExprOp op;
  Val value;
  bool empty = true;
  bool decided = false;

  explicit Fold(ExprOp op_) : op(op_) {
    if (op == ExprOp::kAll || op == ExprOp::kAny) value = of_bool(op == ExprOp::kAll);
    if (op == ExprOp::kSum) value = of_int(0);
  }
  void take(const ExprNode& body, Env& env) {
    switch (op) {
      case ExprOp::kAll:
      case ExprOp::kAny:
        decided = evaluate_bool(body, env) != (op == ExprOp::kAll);
        if (decided) value.boolean = !value.boolean;
        break;
      case ExprOp::kSum:
        value = arithmetic(ExprOp::kAdd, value, evaluate(body, env));
        break;
      default: {
        const Val next = evaluate(body, env);
        real_of(next);
        if (empty || ordered(op == ExprOp::kMax ? ExprOp::kGt : ExprOp::kLt, next, value)) {
          value = next;
        }
      }
    }
    empty = false;
  }
};

void loop(const ExprNode& node, size_t depth, Fold& fold, Env& env) {
  const size_t loops = (node.kids.size() - 1) / 2;
  if (depth == loops) return fold.take(node.kids[0], env);
  const int64_t start = evaluate_int(node.kids[1 + 2 * depth], env);
  const int64_t stop = evaluate_int(node.kids[2 + 2 * depth], env);
  int64_t& variable = env.loops[static_cast<size_t>(node.slot) + depth];
  for (int64_t i = start; i < stop; ++i) {
    if (--env.iterations < 0) throw EvalFailure("it loops for too long");
    variable = i;
    loop(node, depth + 1, fold, env);
    if (fold.decided) return;
  }
}

Val comprehension(const ExprNode& node, Env& env) {
  Fold fold(node.op);
  loop(node, 0, fold, env);
  if (fold.value.kind == Kind::kNone) throw EvalFailure("max and min of nothing");
  return fold.value;
}

Val index_value(const ExprNode& node, const Env& env) {
  if (env.indices == nullptr || env.indices[node.slot].kind == IndexValue::Kind::kUnknown) {
    throw EvalFailure(fmt::format("{} is not known here", node.text));
  }
  return view_of(env.indices[node.slot]);
}

Val tensor_value(const ExprNode& node) {
  Val val;
  val.kind = Kind::kTensor;
  val.tensor = node.slot;
  return val;
}

/// Literals and what names stand for.
Val evaluate_leaf(const ExprNode& node, const Env& env) {
  switch (node.op) {
    case ExprOp::kNone:
      return {};
    case ExprOp::kBool:
      return of_bool(node.integer != 0);
    case ExprOp::kInt:
      return of_int(node.integer);
    case ExprOp::kFloat:
      return of_real(node.real);
    case ExprOp::kString:
      return of_string(node.text);
    case ExprOp::kDType:
      return of_dtype(node.dtype);
    case ExprOp::kIndex:
      return index_value(node, env);
    case ExprOp::kParam:
      return env.params[static_cast<size_t>(node.slot)];
    case ExprOp::kTensor:
      return tensor_value(node);
    case ExprOp::kLoop:
      return of_int(env.loops[static_cast<size_t>(node.slot)]);
    default:
      throw EvalFailure("a tuple or a name cannot stand here");
  }
}

bool evaluate_logic(const ExprNode& node, Env& env) {
  const ExprNode& a = node.kids[0];
  switch (node.op) {
    case ExprOp::kNot:
      return !evaluate_bool(a, env);
    case ExprOp::kAnd:
      return evaluate_bool(a, env) && evaluate_bool(node.kids[1], env);
    case ExprOp::kOr:
      return evaluate_bool(a, env) || evaluate_bool(node.kids[1], env);
    case ExprOp::kEq:
      return equal_nodes(a, node.kids[1], env);
    case ExprOp::kNe:
      return !equal_nodes(a, node.kids[1], env);
    case ExprOp::kIn:
      return contains(a, node.kids[1], env);
    case ExprOp::kNotIn:
      return !contains(a, node.kids[1], env);
    case ExprOp::kPresent:
      return present(node, env);
    default:
      return ordered(node.op, evaluate(a, env), evaluate(node.kids[1], env));
  }
}

}  // namespace

bool evaluate_bool(const ExprNode& node, Env& env) {
  const Val val = evaluate(node, env);
  if (val.kind != Kind::kBool) throw EvalFailure("a truth value is needed");
  return val.boolean;
}

int64_t evaluate_int(const ExprNode& node, Env& env) { return int_of(evaluate(node, env)); }

Val evaluate(const ExprNode& node, Env& env) {
  switch (node.op) {
    case ExprOp::kNeg:
      return negative(evaluate(node.kids[0], env));
    case ExprOp::kAdd:
    case ExprOp::kSub:
    case ExprOp::kMul:
    case ExprOp::kDiv:
    case ExprOp::kFloorDiv:
    case ExprOp::kMod:
      return arithmetic(node.op, evaluate(node.kids[0], env), evaluate(node.kids[1], env));
    case ExprOp::kIf:
      return evaluate(node.kids[evaluate_bool(node.kids[1], env) ? 0 : 2], env);
    case ExprOp::kSubscript:
      return subscript(node, env);
    case ExprOp::kField:
      return field(node, env);
    case ExprOp::kCall:
      return evaluate_primitive(node, env);
    case ExprOp::kAll:
    case ExprOp::kAny:
    case ExprOp::kSum:
    case ExprOp::kMax:
    case ExprOp::kMin:
      return comprehension(node, env);
    case ExprOp::kNot:
    case ExprOp::kEq:
    case ExprOp::kNe:
    case ExprOp::kLt:
    case ExprOp::kLe:
    case ExprOp::kGt:
    case ExprOp::kGe:
    case ExprOp::kIn:
    case ExprOp::kNotIn:
    case ExprOp::kAnd:
    case ExprOp::kOr:
    case ExprOp::kPresent:
      return of_bool(evaluate_logic(node, env));
    default:
      return evaluate_leaf(node, env);
  }
}

}  // namespace tileops::spec
