// SPDX-License-Identifier: Apache-2.0
// The types of parameters: scalars, enums, lists, dtype unions and sum types with invariants.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/value.h"
#include "tileops/spec/expr.h"
#include "tileops/spec/report.h"
#include "tileops/spec/yaml_tree.h"

namespace tileops::spec {

/// The text without the spaces and new lines around it.
std::string_view trim(std::string_view text);

struct SumType;

struct TypeExpr {
  enum class Base : uint8_t { kInt, kBool, kFloat, kString, kEnum, kDType, kList, kSum };
  Base base = Base::kInt;
  bool nullable = false;
  std::string text;                         // as the spec writes it
  std::vector<std::string> enumerators;     // kEnum
  uint32_t dtypes = 0;                      // kDType: the allowed ones, a bit each
  std::shared_ptr<const TypeExpr> element;  // kList
  std::shared_ptr<const SumType> sum;       // kSum
};

struct FieldDecl {
  std::string name;
  TypeExpr type;
  std::optional<Value> default_value;
};

struct Constructor {
  std::string name;
  std::vector<FieldDecl> fields;
};

/// An invariant: a predicate over the fields of the constructors that have all it names.
struct Invariant {
  Expr source;
  std::vector<std::optional<ExprNode>> by_constructor;  // resolved; none where it does not apply
};

struct SumType {
  std::string name;
  std::vector<Constructor> constructors;
  std::vector<Invariant> invariants;
  const Constructor* find(std::string_view constructor) const;
};

/// A named type: an enum or a sum type.
struct NamedType {
  std::string name;
  std::string source;  // file
  std::string text;    // canonical, to compare two declarations of one name
  TypeExpr type;
};
using TypeTable = std::map<std::string, NamedType, std::less<>>;

inline constexpr uint32_t kAllDTypes = (1u << kNumDTypes) - 1;
inline uint32_t dtype_bit(DType dtype) { return 1u << static_cast<uint32_t>(dtype); }
/// "float16 | bfloat16".
std::string dtype_union_text(uint32_t dtypes);

/// A type text ("MGroupedLayout | None", "float16 | bfloat16", "list[int]") or a mapping
/// {enum: [a, b]}. Faults go to `report`; none where it is unreadable.
std::optional<TypeExpr> read_type(const YamlNode& node, const TypeTable& types, const Place& place,
                                  Report& report);
/// The `types` section of a file, added to `types`.
void read_types(const YamlNode& section, TypeTable& types, Report& report);

/// The value as the type has it (defaults of a constructor filled in, an integer as a float where a
/// float is asked), or what is wrong with it.
struct Normalized {
  std::optional<Value> value;
  bool wrong_type = false;  // else a value that cannot be
  std::string fault;        // "must be in [tight, aligned], got 'loose'"
};
Normalized normalize(const TypeExpr& type, const Value& value);

/// The value that a YAML node writes for a type: a scalar, a list, a constructor {masked: {max_m:
/// 4}}. Errors: ExprFault S205.
Value value_from_yaml(const YamlNode& node, const TypeExpr& type);

bool is_identifier(std::string_view text);

}  // namespace tileops::spec
