// SPDX-License-Identifier: Apache-2.0
// Kinds of expressions: names are resolved and kinds checked once, when an entry is read. A field
// of a sum type may be read only where its constructor is known, on a family's case or under a
// condition that says so.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tileops/spec/expr.h"
#include "tileops/spec/types.h"

namespace tileops::spec {

struct StaticKind {
  enum class Base : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kDType,
    kSum,
    kList,
    kSeq,
    kTensor,
    kTuple
  };
  Base base = Base::kNone;
  bool nullable = false;
  const TypeExpr* type = nullptr;  // of a parameter or field
};
/// "an integer", "MGroupedLayout", …
std::string kind_text(const StaticKind& kind);
StaticKind kind_of(const TypeExpr& type);
/// A number that is always there.
bool numeric(const StaticKind& kind);
/// Errors: ExprFault S403 where `left` and `right`, of kinds a and b, can never be equal.
void require_comparable(const ExprNode& left, const StaticKind& a, const ExprNode& right,
                        const StaticKind& b);

/// What is known on the branch where an expression stands, by path ("layout.metadata_kind").
struct Narrowing {
  std::map<std::string, std::set<std::string>> constructors;  // those that are possible
  std::set<std::string> present;                              // those that are not None
};

struct Symbol {
  ExprOp op = ExprOp::kIndex;
  int32_t slot = -1;
  StaticKind kind;
  bool execution = false;  // an execution argument: no expression may read it
};

struct Scope {
  std::map<std::string, Symbol, std::less<>> symbols;
  bool contents = false;  // x[i] reads a tensor's element (requires)
  bool roofline = false;  // builtins that read metadata and stages
};

/// Resolves names in place and returns the kind. Errors: ExprFault S402, S403, S404, S405.
StaticKind check_kinds(ExprNode& node, const Scope& scope, const Narrowing& known);
/// What `condition` being `truth` adds to `known`; the condition is resolved already.
void narrow(const ExprNode& condition, bool truth, const Scope& scope, Narrowing& known);
/// The path of a name or of fields of a name; empty for anything else.
std::string path_of(const ExprNode& node);

}  // namespace tileops::spec
