// SPDX-License-Identifier: Apache-2.0
// Any text as an expression: it parses, is checked and evaluates, or says why not.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tileops/spec/expr.h"
#include "tileops/spec/kinds.h"

namespace {

using namespace tileops;
using namespace tileops::spec;

/// Loops over wide ranges are the author's to avoid: their bounds are literals in a spec.
bool is_long(const ExprNode& node) {
  const bool loop = node.op >= ExprOp::kAll;
  for (size_t i = 0; i < node.kids.size(); ++i) {
    if (loop && i > 0 && (node.kids[i].op != ExprOp::kInt || node.kids[i].integer > 8)) return true;
    if (is_long(node.kids[i])) return true;
  }
  return false;
}

const Scope& scope() {
  static const Scope& instance = *[] {
    auto* fresh = new Scope;
    fresh->symbols["E"] = {ExprOp::kIndex, 0, {StaticKind::Base::kInt}};
    fresh->symbols["S"] = {ExprOp::kIndex, 1, {StaticKind::Base::kSeq}};
    fresh->symbols["T"] = {ExprOp::kIndex, 2, {StaticKind::Base::kDType}};
    fresh->symbols["n"] = {ExprOp::kParam, 0, {StaticKind::Base::kInt}};
    return fresh;
  }();
  return instance;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    Expr expr = parse_expr({reinterpret_cast<const char*>(data), size});
    check_kinds(expr.root, scope(), {});
    if (is_long(expr.root)) return 0;
    std::array<IndexValue, 3> indices{};
    indices[0] = {IndexValue::Kind::kDim, DType::kF32, 8, {}};
    indices[1] = {IndexValue::Kind::kSeq, DType::kF32, 0, {2, 3}};
    indices[2] = {IndexValue::Kind::kDType, DType::kBF16, 0, {}};
    const Value three(3);
    const Val params[] = {view_of(three)};
    Env env{.params = params, .indices = indices.data()};
    to_value(evaluate(expr.root, env));
  } catch (const ExprFault& fault) {
    if (fault.code.size() != 4 || fault.code[0] != 'S') std::abort();
  } catch (const EvalFailure&) {
    return 0;
  }
  return 0;
}
