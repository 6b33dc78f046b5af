// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/inference.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "tileops/core/check.h"
#include "tileops/spec/expr_value.h"
#include "tileops/spec/signature_plan.h"

namespace tileops::spec {
namespace {

using Json = nlohmann::ordered_json;

/// As trees write the operators; comprehensions differ from the functions of their name.
std::string_view operator_text(const ExprNode& node) {
  switch (node.op) {
    case ExprOp::kNeg:
      return "neg";
    case ExprOp::kNot:
      return "not";
    case ExprOp::kAdd:
      return "+";
    case ExprOp::kSub:
      return "-";
    case ExprOp::kMul:
      return "*";
    case ExprOp::kDiv:
      return "/";
    case ExprOp::kFloorDiv:
      return "//";
    case ExprOp::kMod:
      return "%";
    case ExprOp::kEq:
      return "==";
    case ExprOp::kNe:
      return "!=";
    case ExprOp::kLt:
      return "<";
    case ExprOp::kLe:
      return "<=";
    case ExprOp::kGt:
      return ">";
    case ExprOp::kGe:
      return ">=";
    case ExprOp::kIn:
      return "in";
    case ExprOp::kNotIn:
      return "not in";
    case ExprOp::kAnd:
      return "and";
    case ExprOp::kOr:
      return "or";
    case ExprOp::kIf:
      return "if";
    case ExprOp::kSubscript:
      return "at";
    case ExprOp::kPresent:
      return "present";
    case ExprOp::kTuple:
      return "list";
    case ExprOp::kAll:
      return "all of";
    case ExprOp::kAny:
      return "any of";
    case ExprOp::kSum:
      return "sum of";
    case ExprOp::kMax:
      return "max of";
    case ExprOp::kMin:
      return "min of";
    case ExprOp::kCall: {
      const auto all = primitives();
      return std::find_if(all.begin(), all.end(),
                          [&](const PrimitiveInfo& info) {
                            return info.primitive == static_cast<Primitive>(node.slot);
                          })
          ->name;
    }
    default:
      raise(ErrorKind::kInternal, "'{}' has no tree", node.text);
  }
}

Json literal(const Value& value) {
  if (const bool* v = value.as_bool()) return *v;
  if (const int64_t* v = value.as_int()) return *v;
  if (const double* v = value.as_double()) return *v;
  if (const DType* v = value.as_dtype()) return {"dtype", dtype_name(*v)};
  if (const std::string* v = value.as_string()) return {"text", *v};
  if (const Value::List* v = value.as_list()) {
    Json list{"list"};
    for (const Value& each : *v) list.push_back(literal(each));
    return list;
  }
  return nullptr;  // None; a sum type's value is compared or taken apart before a call
}

Json tree(const ExprNode& node, Env& env);

Json comprehension(const ExprNode& node, Env& env) {
  Json json{operator_text(node), tree(node.kids[0], env)};
  for (size_t i = 1; i < node.kids.size(); i += 2) {
    json.push_back({node.slot + static_cast<int>(i / 2), tree(node.kids[i], env),
                    tree(node.kids[i + 1], env)});
  }
  return json;
}

Json tree(const ExprNode& node, Env& env) {
  switch (node.op) {
    case ExprOp::kNone:
    case ExprOp::kBool:
    case ExprOp::kInt:
    case ExprOp::kFloat:
    case ExprOp::kString:
    case ExprOp::kDType:
    case ExprOp::kParam:
    case ExprOp::kField:
      return literal(to_value(evaluate(node, env)));
    case ExprOp::kIndex:
      return {"index", node.slot};
    case ExprOp::kTensor:
      return {"tensor", node.slot};
    case ExprOp::kLoop:
      return {"loop", node.slot};
    default:
      break;
  }
  if (node.op >= ExprOp::kAll) return comprehension(node, env);
  Json json{operator_text(node)};
  for (const ExprNode& kid : node.kids) json.push_back(tree(kid, env));
  return json;
}

std::optional<Json> step_json(const Step& step, const TensorPlan* tensors, Env& env) {
  switch (step.op) {
    case Step::Op::kDTypeSolve:
      return Json{"dtype", step.tensor, 0, step.index};
    case Step::Op::kDim:
      return Json{"dim", step.tensor, step.dim, step.index};
    case Step::Op::kAffine:
      return Json{"affine", step.tensor, step.dim, step.index, step.scale, step.offset};
    case Step::Op::kAffineAt:
      return Json{"affine_at", step.tensor, step.dim, step.index, tree(*step.node, env)};
    case Step::Op::kSegment:
      return Json{"segment", step.tensor, step.dim, step.index, tensors[step.tensor].rank};
    case Step::Op::kLet:
      return Json{"let", step.index, tree(*step.node, env)};
    default:
      return std::nullopt;  // it only checks
  }
}

Json ranks_json(const Plan& plan) {
  Json ranks = Json::array();
  for (const TensorPlan& input : plan.inputs) {
    ranks.push_back(input.shape == nullptr
                        ? Json(nullptr)
                        : Json{input.shape->text, input.rank, input.has_segment});
  }
  return ranks;
}

Json dtype_json(const DTypeDecl& dtype, Env& env) {
  if (dtype.dtypes == 0) return tree(dtype.node, env);
  return literal(Value(static_cast<DType>(__builtin_ctz(dtype.dtypes))));
}

Json output_json(const EntryImpl& entry, const SpecialPlan& special, size_t j, Env& env) {
  Json shape = Json::array();
  for (const ShapeTerm& term : special.output_shapes[j].terms) {
    shape.push_back(term.segment ? Json{"*", tree(term.node, env)} : tree(term.node, env));
  }
  return {{"name", entry.outputs[j].name},
          {"alias", entry.output_specs[j].alias},
          {"cpu", entry.outputs[j].on_cpu},
          {"when", special.presence[j] ? tree(*special.presence[j], env) : Json(true)},
          {"shape", std::move(shape)},
          {"dtype", dtype_json(special.output_dtypes[j], env)}};
}

Json case_json(const EntryImpl& entry, const SpecialPlan& special, Env& env) {
  Json steps = Json::array(), outputs = Json::array();
  for (const Step& step : special.steps) {
    if (auto json = step_json(step, special.plan->inputs.data(), env)) {
      steps.push_back(std::move(*json));
    }
  }
  for (size_t j = 0; j < entry.outputs.size(); ++j) {
    outputs.push_back(output_json(entry, special, j, env));
  }
  return {{"ranks", ranks_json(*special.plan)},
          {"steps", std::move(steps)},
          {"outputs", std::move(outputs)}};
}

/// The indices that construction solved.
Json known_json(const Signature::Plan& plan) {
  Json known = Json::object();
  for (size_t i = 0; i < plan.base.size(); ++i) {
    const IndexValue& value = plan.base[i];
    if (value.kind == IndexValue::Kind::kUnknown) continue;
    Json json;
    if (value.kind == IndexValue::Kind::kSeq) {
      json = std::vector<int64_t>(value.seq.begin(), value.seq.end());
    } else {
      json = literal(to_value(view_of(value)));
    }
    known[std::to_string(i)] = std::move(json);
  }
  return known;
}

}  // namespace

std::string inference_json(const Signature& signature) {
  const EntryImpl& entry = signature.entry().impl();
  const Signature::Plan& plan = signature.plan();
  Env env = plan.env();
  Json inputs = Json::array(), cases = Json::array();
  for (const TensorDecl& input : entry.inputs) {
    inputs.push_back({{"name", input.name}, {"cpu", input.on_cpu}});
  }
  for (const SpecialPlan& special : plan.cases) cases.push_back(case_json(entry, special, env));
  return Json{{"op", entry.name},
              {"inputs", std::move(inputs)},
              {"known", known_json(plan)},
              {"deciding", plan.deciding_inputs},
              {"cases", std::move(cases)}}
      .dump();
}

struct CallExpr::Impl {
  const Signature& signature;
  Expr expr;
};

CallExpr::CallExpr(const Signature& signature, std::string_view text) {
  const EntryImpl& entry = signature.entry().impl();
  try {
    Expr expr = parse_expr(text);
    const StaticKind kind = check_kinds(expr.root, entry.scope, {});
    if (kind.nullable ||
        (kind.base != StaticKind::Base::kInt && kind.base != StaticKind::Base::kBool)) {
      throw ExprFault("S407",
                      fmt::format("it gives {}, not a size or a predicate", kind_text(kind)));
    }
    impl_.reset(new Impl{signature, std::move(expr)});
  } catch (const ExprFault& fault) {
    raise(ErrorKind::kSpec, "{}: '{}': {}", entry.name, text, fault.what());
  }
}

CallExpr::CallExpr(CallExpr&&) noexcept = default;
CallExpr::~CallExpr() = default;

const std::string& CallExpr::text() const { return impl_->expr.text; }

int64_t CallExpr::evaluate(const CallFacts& facts) const {
  Env env = impl_->signature.plan().env();
  env.inputs = facts.inputs.data();
  env.indices = facts.indices.data();
  try {
    const Val val = spec::evaluate(impl_->expr.root, env);
    return val.kind == Val::Kind::kBool ? static_cast<int64_t>(val.boolean) : int_of(val);
  } catch (const EvalFailure& failure) {
    raise_failure(impl_->signature.entry().impl(), "forward", text(), failure);
  }
}

std::string CallExpr::json() const {
  Env env = impl_->signature.plan().env();
  return tree(impl_->expr.root, env).dump();
}

}  // namespace tileops::spec
