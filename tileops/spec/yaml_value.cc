// SPDX-License-Identifier: Apache-2.0
// Values of parameters as YAML writes them.
#include <fmt/format.h>

#include <charconv>

#include "tileops/spec/types.h"

namespace tileops::spec {
namespace {

[[noreturn]] void fail(const YamlNode& node, const TypeExpr& type) {
  throw ExprFault(
      "S205",
      fmt::format("{} is not {}", node.is_scalar() ? "'" + node.scalar + "'" : "this", type.text));
}

template <class T>
T number(const YamlNode& node, const TypeExpr& type) {
  T value{};
  const char* end = node.scalar.data() + node.scalar.size();
  const auto result = std::from_chars(node.scalar.data(), end, value);
  if (!node.is_scalar() || node.quoted || result.ec != std::errc() || result.ptr != end) {
    fail(node, type);
  }
  return value;
}

/// masked, or {masked: {max_m: 128}}.
Value sum_value(const YamlNode& node, const TypeExpr& type) {
  if (node.is_scalar()) return SumValue{type.sum->name, node.scalar, {}};
  if (!node.is_map() || node.members.size() != 1) fail(node, type);
  const auto& [name, fields] = node.members.front();
  const Constructor* constructor = type.sum->find(name);
  if (constructor == nullptr || (!fields.is_map() && fields.kind != YamlNode::Kind::kNull)) {
    fail(node, type);
  }
  SumValue value{type.sum->name, name, {}};
  for (const auto& [field, text] : fields.members) {
    const FieldDecl* decl = nullptr;
    for (const FieldDecl& each : constructor->fields) {
      if (each.name == field) decl = &each;
    }
    if (decl == nullptr) throw ExprFault("S205", fmt::format("{} has no field {}", name, field));
    value.fields.emplace_back(field, value_from_yaml(text, decl->type));
  }
  return value;
}

Value list_value(const YamlNode& node, const TypeExpr& type) {
  if (!node.is_list()) fail(node, type);
  Value::List list;
  for (const YamlNode& item : node.items) list.push_back(value_from_yaml(item, *type.element));
  return list;
}

Value plain_value(const YamlNode& node, const TypeExpr& type) {
  switch (type.base) {
    case TypeExpr::Base::kInt:
      return number<int64_t>(node, type);
    case TypeExpr::Base::kFloat:
      return number<double>(node, type);
    case TypeExpr::Base::kBool:
      if (node.quoted || (node.scalar != "true" && node.scalar != "false")) fail(node, type);
      return node.scalar == "true";
    case TypeExpr::Base::kString:
    case TypeExpr::Base::kEnum:
      if (!node.is_scalar()) fail(node, type);
      return node.scalar;
    case TypeExpr::Base::kDType: {
      const auto dtype = parse_dtype(node.scalar);
      if (!dtype) fail(node, type);
      return *dtype;
    }
    case TypeExpr::Base::kList:
      return list_value(node, type);
    default:
      return sum_value(node, type);
  }
}

}  // namespace

Value value_from_yaml(const YamlNode& node, const TypeExpr& type) {
  const bool none = node.kind == YamlNode::Kind::kNull || (node.scalar == "None" && !node.quoted);
  if (none && type.nullable) return {};
  Normalized normal = normalize(type, plain_value(node, type));
  if (!normal.value) throw ExprFault("S205", normal.fault);
  return std::move(*normal.value);
}

}  // namespace tileops::spec
