// SPDX-License-Identifier: Apache-2.0
// The fields of a call spec by name: hashing and every other language read the same list.
//
//   struct Call {
//     int64_t num_rows = 0;
//     DType dtype = DType::kBF16;
//     auto fields() const {
//       return call_fields(field("num_rows", num_rows), field("dtype", dtype));
//     }
//   };
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "tileops/core/device.h"
#include "tileops/core/hash.h"
#include "tileops/core/value.h"

namespace tileops {

template <class T>
struct CallField {
  std::string_view name;
  const T& value;
};

template <class T>
CallField<T> field(std::string_view name, const T& value) {
  return {name, value};
}
template <class... T>
std::tuple<CallField<T>...> call_fields(CallField<T>... fields) {
  return {fields...};
}

/// A call spec that lists its fields.
template <class Call>
concept HasFields = requires(const Call& call) {
  call.fields();
};

/// Stands for any member while they are counted.
struct AnyMember {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
/// The members of an aggregate.
template <class Aggregate, class... Members>
constexpr size_t num_members() {
  if constexpr (requires { Aggregate{Members{}..., AnyMember{}}; })
    return num_members<Aggregate, Members..., AnyMember>();
  else
    return sizeof...(Members);
}
template <HasFields Call>
inline constexpr bool kListsAllFields =
    std::tuple_size_v<decltype(std::declval<Call>().fields())> == num_members<Call>();

template <class T>
size_t field_hash(const T& value) {
  if constexpr (requires { value.hash(); })
    return value.hash();
  else if constexpr (std::is_same_v<T, Device>)
    return hash_of(static_cast<int>(value.type), value.index);
  else
    return std::hash<T>{}(value);
}

/// The hash of a call's fields.
template <HasFields Call>
size_t hash_fields(const Call& call) {
  static_assert(kListsAllFields<Call>, "fields() must list every member of the call");
  size_t seed = 0;
  std::apply([&](const auto&... each) { ((seed = hash_mix(seed, field_hash(each.value))), ...); },
             call.fields());
  return seed;
}

template <class T>
void add_field(Params& params, const CallField<T>& field) {
  if constexpr (requires { field.value.to_params(); }) {
    for (const auto& [name, value] : field.value.to_params()) params.set(name, value);
  } else if constexpr (requires { field.value.to_value(); }) {
    params.set(field.name, field.value.to_value());
  } else if constexpr (std::is_same_v<T, Device>) {
    params.set(field.name, to_string(field.value));
  } else {
    params.set(field.name, field.value);
  }
}

/// A call's fields as values, in order; a field with parameters of its own (to_params) as those.
template <HasFields Call>
Params field_values(const Call& call) {
  static_assert(kListsAllFields<Call>, "fields() must list every member of the call");
  Params params;
  std::apply([&](const auto&... each) { (add_field(params, each), ...); }, call.fields());
  return params;
}

}  // namespace tileops
