// SPDX-License-Identifier: Apache-2.0
// Value: a parameter, an identity, or what an expression of the spec evaluates to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tileops/core/dtype.h"
#include "tileops/core/hash.h"

namespace tileops {

class Value;

/// A value of a sum type: a constructor with named fields, such as masked{max_m: 128}.
struct SumValue {
  std::string type;         // "MGroupedLayout"
  std::string constructor;  // "masked"
  std::vector<std::pair<std::string, Value>> fields;
  /// The field, or null where this constructor has none of that name.
  const Value* field(std::string_view name) const;
  bool operator==(const SumValue&) const;
};

/// Immutable, equality-comparable and hashable. `None` is the absent value (the seed's None).
class Value {
 public:
  struct None {
    bool operator==(const None&) const = default;
  };
  using List = std::vector<Value>;

  Value() = default;
  Value(None) {}                                        // NOLINT(google-explicit-constructor)
  Value(bool v) : data_(v) {}                           // NOLINT(google-explicit-constructor)
  Value(int v) : data_(static_cast<int64_t>(v)) {}      // NOLINT(google-explicit-constructor)
  Value(int64_t v) : data_(v) {}                        // NOLINT(google-explicit-constructor)
  Value(double v) : data_(v) {}                         // NOLINT(google-explicit-constructor)
  Value(DType v) : data_(v) {}                          // NOLINT(google-explicit-constructor)
  Value(const char* v) : data_(std::string(v)) {}       // NOLINT(google-explicit-constructor)
  Value(std::string_view v) : data_(std::string(v)) {}  // NOLINT(google-explicit-constructor)
  Value(std::string v) : data_(std::move(v)) {}         // NOLINT(google-explicit-constructor)
  Value(List v) : data_(std::make_shared<const List>(std::move(v))) {}          // NOLINT
  Value(SumValue v) : data_(std::make_shared<const SumValue>(std::move(v))) {}  // NOLINT

  bool is_none() const { return std::holds_alternative<None>(data_); }
  /// The held alternative, or null where another is held.
  const bool* as_bool() const { return std::get_if<bool>(&data_); }
  const int64_t* as_int() const { return std::get_if<int64_t>(&data_); }
  const double* as_double() const { return std::get_if<double>(&data_); }
  const DType* as_dtype() const { return std::get_if<DType>(&data_); }
  const std::string* as_string() const { return std::get_if<std::string>(&data_); }
  const List* as_list() const;
  const SumValue* as_sum() const;

  /// Reflexive, so that a value can be a key: NaN equals NaN. Kinds differ: 1 is not 1.0 nor true.
  bool operator==(const Value& other) const;
  size_t hash() const;

 private:
  std::variant<None, bool, int64_t, double, DType, std::string, std::shared_ptr<const List>,
               std::shared_ptr<const SumValue>>
      data_;
};

/// As the spec writes it: None, true, 3, 0.5, bfloat16, silu_and_mul, [1, 2], masked{max_m: 128}.
std::string to_string(const Value& value);

/// Named values in declaration order: an op's parameters.
class Params {
 public:
  Params() = default;
  Params(std::initializer_list<std::pair<std::string, Value>> values) : values_(values) {}
  /// The value, or null where there is none of that name.
  const Value* find(std::string_view name) const;
  /// Errors: kValue naming what is there.
  const Value& at(std::string_view name) const;
  void set(std::string_view name, Value value);
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  size_t size() const { return values_.size(); }
  bool operator==(const Params&) const = default;

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

/// "layout=masked{max_m: 128}, activation=silu_and_mul".
std::string to_string(const Params& params);

}  // namespace tileops

template <>
struct std::hash<tileops::Value> {
  size_t operator()(const tileops::Value& value) const { return value.hash(); }
};
