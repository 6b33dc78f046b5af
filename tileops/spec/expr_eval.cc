// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tileops/spec/expr.h"

namespace tileops::spec {
namespace {

using Kind = Val::Kind;

Val of_bool(bool v) {
  Val val;
  val.kind = Kind::kBool;
  val.boolean = v;
  return val;
}
Val of_int(int64_t v) {
  Val val;
  val.kind = Kind::kInt;
  val.integer = v;
  return val;
}
Val of_real(double v) {
  Val val;
  val.kind = Kind::kFloat;
  val.real = v;
  return val;
}
Val of_string(std::string_view v) {
  Val val;
  val.kind = Kind::kString;
  val.string = {v.data(), v.size()};
  return val;
}
Val of_dtype(DType v) {
  Val val;
  val.kind = Kind::kDType;
  val.dtype = v;
  return val;
}

[[noreturn]] void fail_overflow() { throw EvalFailure("integer overflow", true); }

int64_t add(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_add_overflow(a, b, &result)) fail_overflow();
  return result;
}
int64_t subtract(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
  return result;
}
int64_t multiply(int64_t a, int64_t b) {
  int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
  return result;
}
int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) throw EvalFailure("division by zero");
  if (a == std::numeric_limits<int64_t>::min() && b == -1) fail_overflow();
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0) throw EvalFailure("division by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
int64_t ceil_div(int64_t a, int64_t b) {
  return add(floor_div(a, b), floor_mod(a, b) != 0 ? 1 : 0);
}

int64_t int_of(const Val& val) {
  if (val.kind != Kind::kInt) throw EvalFailure("an integer is needed");
  return val.integer;
}
double real_of(const Val& val) {
  if (!val.is_number()) throw EvalFailure("a number is needed");
  return val.as_real();
}

bool equal(const Val& a, const Val& b) {
  if (a.is_number() && b.is_number()) {
    return a.kind == Kind::kInt && b.kind == Kind::kInt ? a.integer == b.integer
                                                        : a.as_real() == b.as_real();
  }
  if (a.kind == Kind::kSum && b.kind == Kind::kString) return a.sum->constructor == b.text();
  if (a.kind == Kind::kString && b.kind == Kind::kSum) return equal(b, a);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kNone: return true;
    case Kind::kBool: return a.boolean == b.boolean;
    case Kind::kDType: return a.dtype == b.dtype;
    case Kind::kString: return a.text() == b.text();
    case Kind::kSum: return *a.sum == *b.sum;
    case Kind::kList: return *a.list == *b.list;
    case Kind::kSeq: return *a.seq == *b.seq;
    default: throw EvalFailure("these values cannot be compared");
  }
}

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

Val arithmetic(ExprOp op, const Val& a, const Val& b) {
  if (op == ExprOp::kDiv) {
    if (real_of(b) == 0) throw EvalFailure("division by zero");
    return of_real(real_of(a) / real_of(b));
  }
  if (a.kind == Kind::kInt && b.kind == Kind::kInt) {
    switch (op) {
      case ExprOp::kAdd: return of_int(add(a.integer, b.integer));
      case ExprOp::kSub: return of_int(subtract(a.integer, b.integer));
      case ExprOp::kMul: return of_int(multiply(a.integer, b.integer));
      case ExprOp::kFloorDiv: return of_int(floor_div(a.integer, b.integer));
      default: return of_int(floor_mod(a.integer, b.integer));
    }
  }
  switch (op) {
    case ExprOp::kAdd: return of_real(real_of(a) + real_of(b));
    case ExprOp::kSub: return of_real(real_of(a) - real_of(b));
    case ExprOp::kMul: return of_real(real_of(a) * real_of(b));
    default: throw EvalFailure("// and % need integers");
  }
}

bool ordered(ExprOp op, const Val& a, const Val& b) {
  if (a.kind == Kind::kInt && b.kind == Kind::kInt) {
    switch (op) {
      case ExprOp::kLt: return a.integer < b.integer;
      case ExprOp::kLe: return a.integer <= b.integer;
      case ExprOp::kGt: return a.integer > b.integer;
      default: return a.integer >= b.integer;
    }
  }
  const double x = real_of(a);
  const double y = real_of(b);
  switch (op) {
    case ExprOp::kLt: return x < y;
    case ExprOp::kLe: return x <= y;
    case ExprOp::kGt: return x > y;
    default: return x >= y;
  }
}

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

Val element(const Val& tensor, const ExprNode& node, Env& env) {
  const auto slot = static_cast<size_t>(tensor.tensor);
  if (slot >= env.contents.size() || !env.contents[slot].defined()) {
    throw EvalFailure("contents cannot be read here");
  }
  const Tensor& x = env.contents[slot];
  if (static_cast<int>(node.kids.size()) - 1 != x.rank()) {
    throw EvalFailure(fmt::format("{} subscripts for {} dimensions", node.kids.size() - 1, x.rank()));
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
    case DType::kI32: return of_int(x.data_as<int32_t>()[offset]);
    case DType::kI64: return of_int(x.data_as<int64_t>()[offset]);
    case DType::kBool: return of_bool(x.data_as<uint8_t>()[offset] != 0);
    default: break;
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

Val call(const ExprNode& node, Env& env) {
  const auto arg = [&](size_t i) { return evaluate(node.kids[i], env); };
  switch (static_cast<Primitive>(node.slot)) {
    case Primitive::kAbs: {
      const Val x = arg(0);
      if (x.kind != Kind::kInt) return of_real(std::fabs(real_of(x)));
      return of_int(x.integer < 0 ? subtract(0, x.integer) : x.integer);
    }
    case Primitive::kMin: return extreme(node, env, false);
    case Primitive::kMax: return extreme(node, env, true);
    case Primitive::kCeilDiv: return of_int(ceil_div(int_of(arg(0)), int_of(arg(1))));
    case Primitive::kAlignUp: {
      const int64_t unit = int_of(arg(1));
      return of_int(multiply(ceil_div(int_of(arg(0)), unit), unit));
    }
    case Primitive::kSqrt: return of_real(std::sqrt(real_of(arg(0))));
    case Primitive::kIsFinite: return of_bool(std::isfinite(real_of(arg(0))));
    case Primitive::kLen: return of_int(length(arg(0)));
    case Primitive::kProd: return of_int(product(arg(0)));
    case Primitive::kItemsize: {
      const Val dtype = arg(0);
      if (dtype.kind != Kind::kDType) throw EvalFailure("itemsize() needs a dtype");
      return of_int(dtype_bytes(dtype.dtype));
    }
    case Primitive::kRank: return of_int(facts_of(arg(0), env).shape.size());
    case Primitive::kNumel: return of_int(numel_of(facts_of(arg(0), env)));
    case Primitive::kSize: return of_int(size_of(node, env));
    case Primitive::kBytes: {
      const TensorFacts& facts = facts_of(arg(0), env);
      return of_int(multiply(numel_of(facts), dtype_bytes(facts.dtype)));
    }
    default: return evaluate_roofline_builtin(node, env);
  }
}

bool present(const ExprNode& node, Env& env) {
  const Val val = evaluate(node.kids[0], env);
  return val.kind == Kind::kTensor ? facts_of(val, env).present : val.kind != Kind::kNone;
}

/// Folds the bodies of a comprehension; a fold of `all` and `any` stops where it is decided, with the
/// loop variables left at the deciding iteration.
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
      case ExprOp::kSum: value = arithmetic(ExprOp::kAdd, value, evaluate(body, env)); break;
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

Val negative(const Val& val) {
  return val.kind == Kind::kInt ? of_int(subtract(0, val.integer)) : of_real(-real_of(val));
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

std::span<const PrimitiveInfo> primitives() { return kPrimitives; }

const PrimitiveInfo* find_primitive(std::string_view name) {
  for (const PrimitiveInfo& info : kPrimitives) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

Val view_of(const Value& value) {
  Val val;
  if (const auto* v = value.as_bool()) return of_bool(*v);
  if (const auto* v = value.as_int()) return of_int(*v);
  if (const auto* v = value.as_double()) return of_real(*v);
  if (const auto* v = value.as_dtype()) return of_dtype(*v);
  if (const auto* v = value.as_string()) return of_string(*v);
  if (const auto* v = value.as_list()) {
    val.kind = Kind::kList;
    val.list = v;
  } else if (const auto* v = value.as_sum()) {
    val.kind = Kind::kSum;
    val.sum = v;
  }
  return val;
}

Val view_of(const IndexValue& value) {
  switch (value.kind) {
    case IndexValue::Kind::kDim: return of_int(value.dim);
    case IndexValue::Kind::kDType: return of_dtype(value.dtype);
    case IndexValue::Kind::kSeq: {
      Val val;
      val.kind = Kind::kSeq;
      val.seq = &value.seq;
      return val;
    }
    default: return {};
  }
}

Value to_value(const Val& val) {
  switch (val.kind) {
    case Kind::kBool: return val.boolean;
    case Kind::kInt: return val.integer;
    case Kind::kFloat: return val.real;
    case Kind::kDType: return val.dtype;
    case Kind::kString: return val.text();
    case Kind::kSum: return *val.sum;
    case Kind::kList: return *val.list;
    case Kind::kSeq: {
      Value::List list;
      for (int64_t size : *val.seq) list.emplace_back(size);
      return list;
    }
    default: return {};
  }
}

bool evaluate_bool(const ExprNode& node, Env& env) {
  const Val val = evaluate(node, env);
  if (val.kind != Kind::kBool) throw EvalFailure("a truth value is needed");
  return val.boolean;
}

int64_t evaluate_int(const ExprNode& node, Env& env) { return int_of(evaluate(node, env)); }

Val evaluate(const ExprNode& node, Env& env) {
  const auto kid = [&](size_t i) { return evaluate(node.kids[i], env); };
  switch (node.op) {
    case ExprOp::kNone: return {};
    case ExprOp::kBool: return of_bool(node.integer != 0);
    case ExprOp::kInt: return of_int(node.integer);
    case ExprOp::kFloat: return of_real(node.real);
    case ExprOp::kString: return of_string(node.text);
    case ExprOp::kDType: return of_dtype(node.dtype);
    case ExprOp::kIndex: return index_value(node, env);
    case ExprOp::kParam: return env.params[static_cast<size_t>(node.slot)];
    case ExprOp::kTensor: return tensor_value(node);
    case ExprOp::kLoop: return of_int(env.loops[static_cast<size_t>(node.slot)]);
    case ExprOp::kNeg: return negative(kid(0));
    case ExprOp::kNot: return of_bool(!evaluate_bool(node.kids[0], env));
    case ExprOp::kAdd:
    case ExprOp::kSub:
    case ExprOp::kMul:
    case ExprOp::kDiv:
    case ExprOp::kFloorDiv:
    case ExprOp::kMod: return arithmetic(node.op, kid(0), kid(1));
    case ExprOp::kEq: return of_bool(equal_nodes(node.kids[0], node.kids[1], env));
    case ExprOp::kNe: return of_bool(!equal_nodes(node.kids[0], node.kids[1], env));
    case ExprOp::kLt:
    case ExprOp::kLe:
    case ExprOp::kGt:
    case ExprOp::kGe: return of_bool(ordered(node.op, kid(0), kid(1)));
    case ExprOp::kIn: return of_bool(contains(node.kids[0], node.kids[1], env));
    case ExprOp::kNotIn: return of_bool(!contains(node.kids[0], node.kids[1], env));
    case ExprOp::kAnd:
      return of_bool(evaluate_bool(node.kids[0], env) && evaluate_bool(node.kids[1], env));
    case ExprOp::kOr:
      return of_bool(evaluate_bool(node.kids[0], env) || evaluate_bool(node.kids[1], env));
    case ExprOp::kIf: return kid(evaluate_bool(node.kids[1], env) ? 0 : 2);
    case ExprOp::kSubscript: return subscript(node, env);
    case ExprOp::kField: return field(node, env);
    case ExprOp::kPresent: return of_bool(present(node, env));
    case ExprOp::kCall: return call(node, env);
    case ExprOp::kAll:
    case ExprOp::kAny:
    case ExprOp::kSum:
    case ExprOp::kMax:
    case ExprOp::kMin: return comprehension(node, env);
    default: throw EvalFailure("a tuple or a name cannot stand here");
  }
}

}  // namespace tileops::spec
