// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/value.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tileops/core/check.h"

namespace tileops {
namespace {

template <class T>
inline constexpr bool kIsShared = false;
template <class T>
inline constexpr bool kIsShared<std::shared_ptr<T>> = true;

size_t hash_list(const Value::List& list) {
  size_t seed = list.size();
  for (const Value& value : list) seed = hash_mix(seed, value.hash());
  return seed;
}

size_t hash_sum(const SumValue& sum) {
  size_t seed = hash_of(sum.type, sum.constructor);
  for (const auto& [name, value] : sum.fields) seed = hash_mix(seed, hash_of(name, value));
  return seed;
}

/// Never the text of an integer: 1.0, not 1.
std::string double_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == text.npos) text += ".0";
  return text;
}

std::string list_text(const Value::List& list) {
  std::string text = "[";
  for (const Value& value : list) {
    if (text.size() > 1) text += ", ";
    text += to_string(value);
  }
  return text + "]";
}

std::string sum_text(const SumValue& sum) {
  if (sum.fields.empty()) return sum.constructor;
  std::string text = sum.constructor + "{";
  for (const auto& [name, value] : sum.fields) {
    if (text.back() != '{') text += ", ";
    text += name + ": " + to_string(value);
  }
  return text + "}";
}

template <class Pairs>
const Value* find_named(const Pairs& pairs, std::string_view name) {
  const auto it = std::find_if(pairs.begin(), pairs.end(),
                               [name](const auto& pair) { return pair.first == name; });
  return it == pairs.end() ? nullptr : &it->second;
}

}  // namespace

const Value* SumValue::field(std::string_view name) const { return find_named(fields, name); }

bool SumValue::operator==(const SumValue&) const = default;

const Value::List* Value::as_list() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&data_);
  return list == nullptr ? nullptr : list->get();
}

const SumValue* Value::as_sum() const {
  const auto* sum = std::get_if<std::shared_ptr<const SumValue>>(&data_);
  return sum == nullptr ? nullptr : sum->get();
}

bool Value::operator==(const Value& other) const {
  return std::visit(
      [](const auto& a, const auto& b) {
        using A = std::decay_t<decltype(a)>;
        if constexpr (!std::is_same_v<A, std::decay_t<decltype(b)>>) {
          return false;
        } else if constexpr (kIsShared<A>) {
          return a == b || *a == *b;
        } else if constexpr (std::is_same_v<A, double>) {
          return a == b || (std::isnan(a) && std::isnan(b));
        } else {
          return a == b;
        }
      },
      data_, other.data_);
}

size_t Value::hash() const {
  const size_t held = std::visit(
      [](const auto& value) -> size_t {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, None>) {
          return 0;
        } else if constexpr (std::is_same_v<T, std::shared_ptr<const List>>) {
          return hash_list(*value);
        } else if constexpr (std::is_same_v<T, std::shared_ptr<const SumValue>>) {
          return hash_sum(*value);
        } else if constexpr (std::is_same_v<T, double>) {
          return std::isnan(value) ? 1 : std::hash<T>{}(value);
        } else {
          return std::hash<T>{}(value);
        }
      },
      data_);
  return hash_mix(data_.index(), held);
}

std::string to_string(const Value& value) {
  if (const bool* held = value.as_bool()) return *held ? "true" : "false";
  if (const int64_t* held = value.as_int()) return fmt::format("{}", *held);
  if (const double* held = value.as_double()) return double_text(*held);
  if (const DType* held = value.as_dtype()) return std::string(dtype_name(*held));
  if (const std::string* held = value.as_string()) return *held;
  if (const Value::List* held = value.as_list()) return list_text(*held);
  if (const SumValue* held = value.as_sum()) return sum_text(*held);
  return "None";
}

const Value* Params::find(std::string_view name) const { return find_named(values_, name); }

const Value& Params::at(std::string_view name) const {
  const Value* value = find(name);
  if (value != nullptr) return *value;
  std::string names;
  for (const auto& [there, unused] : values_) names += (names.empty() ? "" : ", ") + there;
  raise(ErrorKind::kValue, "there is no parameter '{}'; there are: {}", name,
        names.empty() ? "none" : names);
}

void Params::set(std::string_view name, Value value) {
  const auto it = std::find_if(values_.begin(), values_.end(),
                               [name](const auto& pair) { return pair.first == name; });
  if (it == values_.end()) {
    values_.emplace_back(name, std::move(value));
  } else {
    it->second = std::move(value);
  }
}

std::string to_string(const Params& params) {
  std::string text;
  for (const auto& [name, value] : params) {
    if (!text.empty()) text += ", ";
    text += name + "=" + to_string(value);
  }
  return text;
}

}  // namespace tileops
