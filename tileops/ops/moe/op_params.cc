// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/op_params.h"

#include "tileops/core/check.h"

namespace tileops {

int64_t int_param(const Params& params, std::string_view name, int64_t otherwise) {
  const Value* value = params.find(name);
  if (value == nullptr) return otherwise;
  TILEOPS_CHECK(ErrorKind::kType, value->as_int() != nullptr, "{} must be an integer, got {}", name,
                to_string(*value));
  return *value->as_int();
}

double float_param(const Params& params, std::string_view name, double otherwise) {
  const Value* value = params.find(name);
  if (value == nullptr) return otherwise;
  if (value->as_int() != nullptr) return static_cast<double>(*value->as_int());
  TILEOPS_CHECK(ErrorKind::kType, value->as_double() != nullptr, "{} must be a number, got {}",
                name, to_string(*value));
  return *value->as_double();
}

bool bool_param(const Params& params, std::string_view name, bool otherwise) {
  const Value* value = params.find(name);
  if (value == nullptr) return otherwise;
  TILEOPS_CHECK(ErrorKind::kType, value->as_bool() != nullptr, "{} must be true or false, got {}",
                name, to_string(*value));
  return *value->as_bool();
}

std::optional<DType> dtype_param(const Params& params, std::string_view name) {
  const Value* value = params.find(name);
  if (value == nullptr || value->is_none()) return std::nullopt;
  TILEOPS_CHECK(ErrorKind::kType, value->as_dtype() != nullptr,
                "{} must be a dtype or None, got {}", name, to_string(*value));
  return *value->as_dtype();
}

Value dtype_value(std::optional<DType> dtype) { return dtype ? Value(*dtype) : Value(); }

}  // namespace tileops
