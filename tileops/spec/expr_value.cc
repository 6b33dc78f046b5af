// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/expr_value.h"

#include <fmt/format.h>

#include <limits>

namespace tileops::spec {
namespace {

using Kind = Val::Kind;

[[noreturn]] void fail_overflow() { throw EvalFailure("integer overflow", true); }

Val int_arithmetic(ExprOp op, int64_t a, int64_t b) {
  switch (op) {
    case ExprOp::kAdd:
      return of_int(add(a, b));
    case ExprOp::kSub:
      return of_int(subtract(a, b));
    case ExprOp::kMul:
      return of_int(multiply(a, b));
    case ExprOp::kFloorDiv:
      return of_int(floor_div(a, b));
    default:
      return of_int(floor_mod(a, b));
  }
}

template <class T>
bool in_order(ExprOp op, T a, T b) {
  switch (op) {
    case ExprOp::kLt:
      return a < b;
    case ExprOp::kLe:
      return a <= b;
    case ExprOp::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

}  // namespace

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

Val negative(const Val& val) {
  return val.kind == Kind::kInt ? of_int(subtract(0, val.integer)) : of_real(-real_of(val));
}

Val arithmetic(ExprOp op, const Val& a, const Val& b) {
  if (op == ExprOp::kDiv) {
    if (real_of(b) == 0) throw EvalFailure("division by zero");
    return of_real(real_of(a) / real_of(b));
  }
  if (a.kind == Kind::kInt && b.kind == Kind::kInt) return int_arithmetic(op, a.integer, b.integer);
  switch (op) {
    case ExprOp::kAdd:
      return of_real(real_of(a) + real_of(b));
    case ExprOp::kSub:
      return of_real(real_of(a) - real_of(b));
    case ExprOp::kMul:
      return of_real(real_of(a) * real_of(b));
    default:
      throw EvalFailure("// and % need integers");
  }
}

bool ordered(ExprOp op, const Val& a, const Val& b) {
  if (a.kind == Kind::kInt && b.kind == Kind::kInt) return in_order(op, a.integer, b.integer);
  return in_order(op, real_of(a), real_of(b));
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
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return a.boolean == b.boolean;
    case Kind::kDType:
      return a.dtype == b.dtype;
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kSum:
      return *a.sum == *b.sum;
    case Kind::kList:
      return *a.list == *b.list;
    case Kind::kSeq:
      return *a.seq == *b.seq;
    default:
      throw EvalFailure("these values cannot be compared");
  }
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
    case IndexValue::Kind::kDim:
      return of_int(value.dim);
    case IndexValue::Kind::kDType:
      return of_dtype(value.dtype);
    case IndexValue::Kind::kSeq: {
      Val val;
      val.kind = Kind::kSeq;
      val.seq = &value.seq;
      return val;
    }
    default:
      return {};
  }
}

Value to_value(const Val& val) {
  switch (val.kind) {
    case Kind::kBool:
      return val.boolean;
    case Kind::kInt:
      return val.integer;
    case Kind::kFloat:
      return val.real;
    case Kind::kDType:
      return val.dtype;
    case Kind::kString:
      return val.text();
    case Kind::kSum:
      return *val.sum;
    case Kind::kList:
      return *val.list;
    case Kind::kSeq: {
      Value::List list;
      for (int64_t size : *val.seq) list.emplace_back(size);
      return list;
    }
    default:
      return {};
  }
}

}  // namespace tileops::spec
