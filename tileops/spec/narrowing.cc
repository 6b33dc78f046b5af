// SPDX-License-Identifier: Apache-2.0
// What a condition tells of the branch that it guards.
#include <utility>

#include "tileops/spec/kinds.h"

namespace tileops::spec {
namespace {

/// The type behind a path, or null.
const TypeExpr* type_of_path(const ExprNode& node, const Scope& scope) {
  if (node.op == ExprOp::kParam) {
    const auto it = scope.symbols.find(node.text);
    return it == scope.symbols.end() ? nullptr : it->second.kind.type;
  }
  if (node.op != ExprOp::kField) return nullptr;
  const TypeExpr* base = type_of_path(node.kids[0], scope);
  if (base == nullptr || base->sum == nullptr) return nullptr;
  for (const Constructor& constructor : base->sum->constructors) {
    for (const FieldDecl& each : constructor.fields) {
      if (each.name == node.text) return &each.type;
    }
  }
  return nullptr;
}

void narrow_equality(const ExprNode& condition, bool equal, const Scope& scope, Narrowing& known) {
  const ExprNode* subject = &condition.kids[0];
  const ExprNode* literal = &condition.kids[1];
  if (literal->op != ExprOp::kString && literal->op != ExprOp::kNone) std::swap(subject, literal);
  const std::string path = path_of(*subject);
  if (path.empty()) return;
  if (literal->op == ExprOp::kNone) {
    if (!equal) known.present.insert(path);
    return;
  }
  const TypeExpr* type = type_of_path(*subject, scope);
  if (literal->op != ExprOp::kString || type == nullptr || type->sum == nullptr) return;
  if (equal) {
    known.present.insert(path);
    known.constructors[path] = {literal->text};
    return;
  }
  auto& possible = known.constructors[path];
  if (possible.empty()) {
    for (const Constructor& each : type->sum->constructors) possible.insert(each.name);
  }
  possible.erase(literal->text);
}

}  // namespace

std::string path_of(const ExprNode& node) {
  if (node.op == ExprOp::kParam || node.op == ExprOp::kTensor || node.op == ExprOp::kName ||
      node.op == ExprOp::kIndex) {
    return node.text;
  }
  if (node.op != ExprOp::kField) return "";
  const std::string base = path_of(node.kids[0]);
  return base.empty() ? "" : base + "." + node.text;
}

void narrow(const ExprNode& condition, bool truth, const Scope& scope, Narrowing& known) {
  switch (condition.op) {
    case ExprOp::kNot:
      return narrow(condition.kids[0], !truth, scope, known);
    case ExprOp::kAnd:
    case ExprOp::kOr:
      if (truth == (condition.op == ExprOp::kAnd)) {
        narrow(condition.kids[0], truth, scope, known);
        narrow(condition.kids[1], truth, scope, known);
      }
      return;
    case ExprOp::kPresent:
      if (truth) known.present.insert(path_of(condition.kids[0]));
      return;
    case ExprOp::kEq:
      return narrow_equality(condition, truth, scope, known);
    case ExprOp::kNe:
      return narrow_equality(condition, !truth, scope, known);
    default:
      return;
  }
}

}  // namespace tileops::spec
