// SPDX-License-Identifier: Apache-2.0
// Which kinds a comparison takes, and what each is called.
#include <fmt/format.h>

#include <algorithm>

#include "tileops/spec/kinds.h"

namespace tileops::spec {
namespace {

using Base = StaticKind::Base;

template <class... Args>
[[noreturn]] void mismatch(fmt::format_string<Args...> format, Args&&... args) {
  throw ExprFault("S403", fmt::format(format, std::forward<Args>(args)...));
}

void require_case(const StaticKind& kind, std::string_view name) {
  if (kind.base == Base::kSum && kind.type->sum->find(name) == nullptr) {
    mismatch("{} has no constructor '{}'", kind.type->sum->name, name);
  }
  const auto& names = kind.type->enumerators;
  if (kind.base == Base::kString && !names.empty() &&
      std::find(names.begin(), names.end(), name) == names.end()) {
    mismatch("'{}' is not one of [{}]", name, fmt::join(names, ", "));
  }
  if (kind.base != Base::kSum && kind.base != Base::kString) {
    mismatch("{} cannot equal a string", kind_text(kind));
  }
}

}  // namespace

bool numeric(const StaticKind& kind) {
  return !kind.nullable && (kind.base == Base::kInt || kind.base == Base::kFloat);
}

void require_comparable(const ExprNode& left, const StaticKind& a, const ExprNode& right,
                        const StaticKind& b) {
  if (numeric({a.base}) && numeric({b.base})) return;
  if (a.base == Base::kNone || b.base == Base::kNone) {
    const StaticKind& other = a.base == Base::kNone ? b : a;
    if (!other.nullable) mismatch("{} is never None", kind_text(other));
    return;
  }
  if (a.base == Base::kString && b.base != Base::kString) {
    return require_comparable(right, b, left, a);
  }
  if (b.base == Base::kString && right.op == ExprOp::kString && a.type != nullptr) {
    return require_case(a, right.text);
  }
  if (a.base != b.base || a.base == Base::kTensor) {
    mismatch("{} cannot equal {}", kind_text(a), kind_text(b));
  }
}

StaticKind kind_of(const TypeExpr& type) {
  static constexpr Base kBases[] = {Base::kInt,    Base::kBool,  Base::kFloat, Base::kString,
                                    Base::kString, Base::kDType, Base::kList,  Base::kSum};
  return {kBases[static_cast<size_t>(type.base)], type.nullable, &type};
}

std::string kind_text(const StaticKind& kind) {
  static constexpr std::string_view kNames[] = {
      "None",       "a truth value", "an integer", "a number", "a string", "a dtype",
      "a sum type", "a list",        "a shape",    "a tensor", "a tuple"};
  if (kind.type != nullptr) return kind.type->text;
  std::string text(kNames[static_cast<size_t>(kind.base)]);
  return kind.nullable && kind.base != Base::kNone ? text + " or None" : text;
}

}  // namespace tileops::spec
