// SPDX-License-Identifier: Apache-2.0
// Values of expressions: making, converting, comparing, 64-bit arithmetic that reports overflow.
#pragma once

#include <cstdint>
#include <string_view>

#include "tileops/spec/expr.h"

namespace tileops::spec {

Val of_bool(bool v);
Val of_int(int64_t v);
Val of_real(double v);
Val of_string(std::string_view v);
Val of_dtype(DType v);

/// Errors (of all below): EvalFailure for a value of another kind, for overflow and division by
/// zero.
int64_t int_of(const Val& val);
double real_of(const Val& val);
int64_t add(int64_t a, int64_t b);
int64_t subtract(int64_t a, int64_t b);
int64_t multiply(int64_t a, int64_t b);
int64_t floor_div(int64_t a, int64_t b);
int64_t floor_mod(int64_t a, int64_t b);
int64_t ceil_div(int64_t a, int64_t b);
Val negative(const Val& val);
Val arithmetic(ExprOp op, const Val& a, const Val& b);
bool ordered(ExprOp op, const Val& a, const Val& b);
bool equal(const Val& a, const Val& b);

/// A primitive's value (expr_primitives.cc).
Val evaluate_primitive(const ExprNode& call, Env& env);
/// The facts of a tensor value.
const TensorFacts& facts_of(const Val& tensor, const Env& env);

}  // namespace tileops::spec
