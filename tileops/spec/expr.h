// SPDX-License-Identifier: Apache-2.0
// Expressions of the spec: a closed language, parsed and kind-checked once, evaluated without
// parsing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/dtype.h"
#include "tileops/core/tensor.h"
#include "tileops/core/value.h"
#include "tileops/spec/facts.h"

namespace tileops::spec {

inline constexpr size_t kMaxExprBytes = 4096;
inline constexpr int kMaxExprNodes = 1024;
inline constexpr int kMaxExprDepth = 64;
inline constexpr int kMaxLoops = 4;

enum class ExprOp : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kDType,
  kTuple,
  kName,  // before names are resolved
  kIndex,
  kParam,
  kTensor,
  kLoop,  // after: slot says which
  kNeg,
  kNot,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn,
  kAnd,
  kOr,
  kIf,
  kSubscript,
  kField,
  kPresent,
  kCall,
  kAll,
  kAny,
  kSum,
  kMax,
  kMin,  // over a comprehension
};

/// kIf: kids are then, condition, else. A comprehension: kids are the body, then start and stop of
/// each loop; `slot` is its first loop variable. kCall: `slot` is the Primitive.
struct ExprNode {
  ExprOp op = ExprOp::kNone;
  int32_t slot = -1;
  int32_t position = 0;  // in the text
  int64_t integer = 0;
  double real = 0;
  DType dtype = DType::kF32;
  std::string text;  // a name, a string, a field
  std::vector<ExprNode> kids;
};

struct Expr {
  std::string text;
  ExprNode root;
};

/// A fault of an expression's text or kinds, found when it is read.
struct ExprFault : std::runtime_error {
  ExprFault(std::string_view code_, const std::string& message)
      : std::runtime_error(message), code(code_) {}
  std::string_view code;
};

/// Parses; names stay unresolved. Errors: ExprFault.
Expr parse_expr(std::string_view text);
/// The names that an expression mentions (loop variables aside), each once.
std::vector<std::string> names_of(const ExprNode& node);

/// The functions of the language.
enum class Primitive : int32_t {
  kAbs,
  kMin,
  kMax,
  kCeilDiv,
  kAlignUp,
  kSqrt,
  kIsFinite,
  kLen,
  kProd,
  kItemsize,
  kRank,
  kNumel,
  kSize,
  kBytes,
  kValidRows,
  kExpertsHit,
  kDistinct,
  kValidIds,
  kStaged,
};
struct PrimitiveInfo {
  std::string_view name;
  Primitive primitive;
  int min_args, max_args;
  bool roofline_only;
};
const PrimitiveInfo* find_primitive(std::string_view name);
std::span<const PrimitiveInfo> primitives();

/// What an expression evaluates to: a view, valid as long as what it was evaluated over.
struct Val {
  struct Chars {
    const char* data;
    size_t size;
  };
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kDType,
    kString,
    kSum,
    kList,
    kSeq,
    kTensor
  };
  Kind kind = Kind::kNone;
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
    DType dtype;
    const SumValue* sum;
    const Value::List* list;
    const Dims* seq;
    int32_t tensor;
    Chars string;
  };
  std::string_view text() const { return {string.data, string.size}; }
  bool is_number() const { return kind == Kind::kInt || kind == Kind::kFloat; }
  double as_real() const { return kind == Kind::kInt ? static_cast<double>(integer) : real; }
};
Val view_of(const Value& value);
Val view_of(const IndexValue& value);
Value to_value(const Val& val);

/// A failed evaluation; whoever evaluates adds entry and field.
struct EvalFailure : std::runtime_error {
  EvalFailure(const std::string& message, bool overflow_ = false)
      : std::runtime_error(message), overflow(overflow_) {}
  bool overflow;
};

/// Tensor slots from here on are construction-time tensors.
inline constexpr int32_t kConstructionSlot = 1 << 8;

struct RooflineCall;

/// What an expression is evaluated over.
struct Env {
  std::span<const Val> params;
  const IndexValue* indices = nullptr;
  const TensorFacts* inputs = nullptr;
  std::span<const TensorFacts> construction = {};
  TensorRefs contents = {};                // of the inputs, where contents may be read
  const RooflineCall* roofline = nullptr;  // where a formula is priced
  std::array<int64_t, kMaxLoops> loops{};
  int64_t iterations = int64_t{1} << 22;  // that all loops together may take
};

/// Errors: EvalFailure.
Val evaluate(const ExprNode& node, Env& env);
bool evaluate_bool(const ExprNode& node, Env& env);
int64_t evaluate_int(const ExprNode& node, Env& env);
/// The price of a roofline builtin (roofline.cc). Errors: EvalFailure; kState on meta.
Val evaluate_roofline_builtin(const ExprNode& call, Env& env);

}  // namespace tileops::spec
