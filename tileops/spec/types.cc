// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tileops/spec/kinds.h"

namespace tileops::spec {

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.remove_suffix(1);
  return text;
}

namespace {

constexpr size_t kMaxNesting = 16;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(trim(text.substr(0, at)));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

/// One alternative of a type text, other than None. None where there is no such type.
std::optional<TypeExpr> read_alternative(std::string_view text, const TypeTable& types) {
  TypeExpr type;
  type.text = text;
  if (text == "int") return type;
  if (text == "bool" || text == "float" || text == "str") {
    type.base = text == "bool"    ? TypeExpr::Base::kBool
                : text == "float" ? TypeExpr::Base::kFloat
                                  : TypeExpr::Base::kString;
    return type;
  }
  if (text == "DType") {
    type.base = TypeExpr::Base::kDType;
    type.dtypes = kAllDTypes;
    return type;
  }
  if (const auto dtype = parse_dtype(text); dtype && dtype_name(*dtype) == text) {
    type.base = TypeExpr::Base::kDType;
    type.dtypes = dtype_bit(*dtype);
    return type;
  }
  if (text.starts_with("list[") && text.ends_with("]") && text.size() < 64) {
    auto element = read_alternative(trim(text.substr(5, text.size() - 6)), types);
    if (!element) return std::nullopt;
    type.base = TypeExpr::Base::kList;
    type.element = std::make_shared<const TypeExpr>(std::move(*element));
    return type;
  }
  const auto it = types.find(text);
  if (it == types.end()) return std::nullopt;
  return it->second.type;
}

std::optional<TypeExpr> read_type_text(std::string_view text, const TypeTable& types,
                                       const Place& place, Report& report) {
  std::optional<TypeExpr> whole;
  bool nullable = false;
  for (std::string_view part : split(text, '|')) {
    if (part == "None") {
      nullable = true;
      continue;
    }
    auto type = read_alternative(part, types);
    if (!type) {
      report.add("S201", place, fmt::format("there is no type '{}'", part));
      return std::nullopt;
    }
    if (!whole) {
      whole = std::move(type);
    } else if (whole->base == TypeExpr::Base::kDType && type->base == TypeExpr::Base::kDType) {
      whole->dtypes |= type->dtypes;
    } else {
      report.add("S202", place,
                 fmt::format("'{}': only dtypes and None can stand beside '|'", text));
      return std::nullopt;
    }
  }
  if (!whole) {
    report.add("S201", place, fmt::format("'{}' names no type", text));
    return std::nullopt;
  }
  whole->nullable = nullable;
  whole->text = text;
  return whole;
}

std::optional<TypeExpr> read_enum(const YamlNode& list, const Place& place, Report& report) {
  TypeExpr type;
  type.base = TypeExpr::Base::kEnum;
  std::set<std::string> seen;
  for (const YamlNode& item : list.items) {
    if (!item.is_scalar() || !is_identifier(item.scalar) || !seen.insert(item.scalar).second) {
      report.add("S203", place, "enumerators are distinct words");
      return std::nullopt;
    }
    type.enumerators.push_back(item.scalar);
  }
  if (!list.is_list() || type.enumerators.empty()) {
    report.add("S203", place, "an enum is a list of words");
    return std::nullopt;
  }
  type.text = fmt::format("one of [{}]", fmt::join(type.enumerators, ", "));
  return type;
}

void canonical_text(const YamlNode& node, std::string& out) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      out += "~";
      return;
    case YamlNode::Kind::kScalar:
      out += "'" + node.scalar + "'";
      return;
    case YamlNode::Kind::kList:
      out += "[";
      for (const YamlNode& item : node.items) canonical_text(item, out);
      out += "]";
      return;
    case YamlNode::Kind::kMap:
      out += "{";
      for (const auto& [key, value] : node.members) {
        out += key + ":";
        canonical_text(value, out);
      }
      out += "}";
  }
}

/// Reads sum types; a type that a field names is read first, whatever the order in the file.
class TypeReader {
 public:
  TypeReader(const YamlNode& section, TypeTable& types, Report& report)
      : section_(section), types_(types), report_(report) {}

  void run() {
    for (size_t i = 0; i < section_.members.size(); ++i) read_named(section_.members[i].first);
  }

 private:
  void read_named(const std::string& name) {
    const YamlNode* node = section_.find(name);
    if (node == nullptr || done_.contains(name)) return;
    const Place place{"", "types." + name, node->line};
    if (open_.size() == kMaxNesting || !open_.insert(name).second) {
      report_.add("S208", place, fmt::format("{} contains itself, or nests too deep", name));
      done_.insert(name);
      return;
    }
    NamedType named{name, report_.source(), "", {}};
    canonical_text(*node, named.text);
    auto type = read_declaration(name, *node, place);
    open_.erase(name);
    if (!done_.insert(name).second || !type) return;
    named.type = std::move(*type);
    const auto [it, fresh] = types_.try_emplace(name, named);
    if (!fresh && it->second.text != named.text) {
      report_.add("S204", place, fmt::format("{} is another type in {}", name, it->second.source));
    }
  }

  std::optional<TypeExpr> read_declaration(const std::string& name, const YamlNode& node,
                                           const Place& place) {
    if (!is_identifier(name) || !node.is_map() || node.members.empty()) {
      report_.add("S203", place, "a type is {enum: [...]} or a mapping of constructors");
      return std::nullopt;
    }
    if (const YamlNode* list = node.find("enum"); list != nullptr && node.members.size() == 1) {
      auto type = read_enum(*list, place, report_);
      if (type) type->text = name;
      return type;
    }
    auto sum = std::make_shared<SumType>();
    sum->name = name;
    for (const auto& [constructor, fields] : node.members) {
      if (constructor == "invariants") continue;
      sum->constructors.push_back(read_constructor(constructor, fields, place));
    }
    if (const YamlNode* list = node.find("invariants")) read_invariants(*list, *sum, place);
    TypeExpr type;
    type.base = TypeExpr::Base::kSum;
    type.text = name;
    type.sum = std::move(sum);
    return type;
  }

  Constructor read_constructor(const std::string& name, const YamlNode& node, const Place& outer) {
    const Place place = outer.at(name, node.line);
    Constructor constructor{name, {}};
    if (!is_identifier(name) || (!node.is_map() && node.kind != YamlNode::Kind::kNull)) {
      report_.add("S203", place, "a constructor is a name with a mapping of fields");
      return constructor;
    }
    for (const auto& [field, spec] : node.members) {
      if (auto decl = read_field(field, spec, place.at(field, spec.line))) {
        constructor.fields.push_back(std::move(*decl));
      }
    }
    return constructor;
  }

  std::optional<FieldDecl> read_field(const std::string& name, const YamlNode& node,
                                      const Place& place) {
    const YamlNode* spec = node.is_map() ? node.find("type") : &node;
    const bool is_enum = node.is_map() && node.find("enum") != nullptr;
    if (is_enum) spec = &node;
    if (spec == nullptr || !is_identifier(name)) {
      report_.add("S203", place, "a field is a name with a type");
      return std::nullopt;
    }
    if (spec->is_scalar()) {
      for (std::string_view part : split(spec->scalar, '|')) read_named(std::string(part));
    }
    auto type = read_type(*spec, types_, place, report_);
    if (!type) return std::nullopt;
    FieldDecl decl{name, std::move(*type), std::nullopt};
    if (const YamlNode* value = node.is_map() ? node.find("default") : nullptr) {
      try {
        decl.default_value = value_from_yaml(*value, decl.type);
      } catch (const ExprFault& fault) {
        report_.add(fault.code, place, fault.what());
      }
    }
    return decl;
  }

  void read_invariants(const YamlNode& list, SumType& sum, const Place& outer) {
    for (const YamlNode& item : list.items) {
      const Place place = outer.at("invariants", item.line);
      try {
        sum.invariants.push_back(resolve(parse_expr(item.scalar), sum));
      } catch (const ExprFault& fault) {
        report_.add(fault.code, place, fmt::format("'{}': {}", item.scalar, fault.what()));
      }
    }
  }

  static Invariant resolve(Expr source, const SumType& sum) {
    Invariant invariant{std::move(source), {}};
    bool applies = false;
    for (const Constructor& constructor : sum.constructors) {
      Scope scope;
      for (size_t i = 0; i < constructor.fields.size(); ++i) {
        scope.symbols[constructor.fields[i].name] = {ExprOp::kParam, static_cast<int32_t>(i),
                                                     kind_of(constructor.fields[i].type)};
      }
      auto& slot = invariant.by_constructor.emplace_back();
      const auto names = names_of(invariant.source.root);
      if (!std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) { return scope.symbols.contains(name); })) {
        continue;
      }
      ExprNode node = invariant.source.root;
      const StaticKind kind = check_kinds(node, scope, {});
      if (kind.base != StaticKind::Base::kBool) throw ExprFault("S207", "it is not a predicate");
      slot = std::move(node);
      applies = true;
    }
    if (!applies) throw ExprFault("S206", "no constructor has all the fields that it names");
    return invariant;
  }

  const YamlNode& section_;
  TypeTable& types_;
  Report& report_;
  std::set<std::string> open_;
  std::set<std::string> done_;
};

}  // namespace

const Constructor* SumType::find(std::string_view constructor) const {
  for (const Constructor& each : constructors) {
    if (each.name == constructor) return &each;
  }
  return nullptr;
}

std::string dtype_union_text(uint32_t dtypes) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kNumDTypes; ++i) {
    if ((dtypes >> i) & 1u) names.push_back(dtype_name(static_cast<DType>(i)));
  }
  return fmt::format("{}", fmt::join(names, " | "));
}

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && text != "_" && letter(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

std::optional<TypeExpr> read_type(const YamlNode& node, const TypeTable& types, const Place& place,
                                  Report& report) {
  if (node.is_scalar()) return read_type_text(node.scalar, types, place, report);
  if (const YamlNode* list = node.is_map() ? node.find("enum") : nullptr) {
    return read_enum(*list, place, report);
  }
  report.add("S201", place, "a type is a text or {enum: [...]}");
  return std::nullopt;
}

void read_types(const YamlNode& section, TypeTable& types, Report& report) {
  if (!section.is_map()) {
    report.add("S105", {"", "types", section.line}, "types is a mapping");
    return;
  }
  TypeReader(section, types, report).run();
}

}  // namespace tileops::spec
