// SPDX-License-Identifier: Apache-2.0
// Values of parameters held against their types.
#include <fmt/format.h>

#include <algorithm>

#include "tileops/spec/types.h"

namespace tileops::spec {
namespace {

Normalized wrong_type(const TypeExpr& type, const Value& value) {
  return {std::nullopt, true, fmt::format("must be {}, got {}", type.text, to_string(value))};
}
Normalized wrong_value(std::string fault) { return {std::nullopt, false, std::move(fault)}; }

std::string broken_invariant(const SumType& sum, size_t constructor, const SumValue& value) {
  std::vector<Val> fields;
  for (const auto& [name, field] : value.fields) fields.push_back(view_of(field));
  for (const Invariant& invariant : sum.invariants) {
    const auto& node = invariant.by_constructor[constructor];
    if (!node) continue;
    Env env{.params = fields};
    try {
      if (evaluate_bool(*node, env)) continue;
    } catch (const EvalFailure& failure) {
      return fmt::format("'{}' failed: {}", invariant.source.text, failure.what());
    }
    return fmt::format("must satisfy '{}'", invariant.source.text);
  }
  return "";
}

Normalized normalize_sum(const TypeExpr& type, const Value& value) {
  const SumType& sum = *type.sum;
  SumValue given;
  if (const auto* name = value.as_string()) {
    given = {sum.name, *name, {}};
  } else if (const auto* held = value.as_sum(); held != nullptr && held->type == sum.name) {
    given = *held;
  } else {
    return wrong_type(type, value);
  }
  const Constructor* constructor = sum.find(given.constructor);
  if (constructor == nullptr) {
    std::vector<std::string_view> names;
    for (const Constructor& each : sum.constructors) names.push_back(each.name);
    return wrong_value(fmt::format("must be a {} ({}), got {}", sum.name, fmt::join(names, " | "),
                                   to_string(value)));
  }
  SumValue whole{sum.name, given.constructor, {}};
  for (const FieldDecl& field : constructor->fields) {
    const Value* held = given.field(field.name);
    if (held == nullptr && !field.default_value) {
      return wrong_value(fmt::format("{} lacks its field {}", to_string(value), field.name));
    }
    Normalized inner = normalize(field.type, held != nullptr ? *held : *field.default_value);
    if (!inner.value) {
      inner.fault = fmt::format("field {} {}", field.name, inner.fault);
      return inner;
    }
    whole.fields.emplace_back(field.name, std::move(*inner.value));
  }
  for (const auto& [name, unused] : given.fields) {
    if (whole.field(name) == nullptr) {
      return wrong_value(fmt::format("{} has no field {}", given.constructor, name));
    }
  }
  const auto index = static_cast<size_t>(constructor - sum.constructors.data());
  const std::string broken = broken_invariant(sum, index, whole);
  if (!broken.empty()) return wrong_value(fmt::format("{}, got {}", broken, to_string(value)));
  return {Value(std::move(whole)), false, ""};
}

Normalized normalize_list(const TypeExpr& type, const Value& value) {
  if (value.as_list() == nullptr) return wrong_type(type, value);
  Value::List list;
  for (const Value& each : *value.as_list()) {
    Normalized inner = normalize(*type.element, each);
    if (!inner.value) return inner;
    list.push_back(std::move(*inner.value));
  }
  return {Value(std::move(list)), false, ""};
}

Normalized normalize_enum(const TypeExpr& type, const Value& value) {
  const auto* name = value.as_string();
  if (name == nullptr) return wrong_type(type, value);
  const auto& names = type.enumerators;
  if (std::find(names.begin(), names.end(), *name) == names.end()) {
    return wrong_value(fmt::format("must be one of [{}], got {}", fmt::join(names, ", "), *name));
  }
  return {value, false, ""};
}

}  // namespace

Normalized normalize(const TypeExpr& type, const Value& value) {
  if (value.is_none()) {
    if (type.nullable) return {value, false, ""};
    return wrong_type(type, value);
  }
  switch (type.base) {
    case TypeExpr::Base::kInt:
      if (value.as_int() == nullptr) return wrong_type(type, value);
      return {value, false, ""};
    case TypeExpr::Base::kBool:
      if (value.as_bool() == nullptr) return wrong_type(type, value);
      return {value, false, ""};
    case TypeExpr::Base::kFloat:
      if (const auto* v = value.as_int()) return {Value(static_cast<double>(*v)), false, ""};
      if (value.as_double() == nullptr) return wrong_type(type, value);
      return {value, false, ""};
    case TypeExpr::Base::kString:
      if (value.as_string() == nullptr) return wrong_type(type, value);
      return {value, false, ""};
    case TypeExpr::Base::kEnum:
      return normalize_enum(type, value);
    case TypeExpr::Base::kDType:
      if (value.as_dtype() == nullptr) return wrong_type(type, value);
      if ((type.dtypes & dtype_bit(*value.as_dtype())) == 0) {
        return wrong_value(fmt::format("must be {}, got {}", type.text, to_string(value)));
      }
      return {value, false, ""};
    case TypeExpr::Base::kList:
      return normalize_list(type, value);
    default:
      return normalize_sum(type, value);
  }
}

}  // namespace tileops::spec
