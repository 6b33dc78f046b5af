// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/entry_json.h"

#include <nlohmann/json.hpp>

#include "tileops/spec/entry_impl.h"
#include "tileops/spec/known.h"

namespace tileops::spec {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Value& value) {
  if (const auto* v = value.as_bool()) return *v;
  if (const auto* v = value.as_int()) return *v;
  if (const auto* v = value.as_double()) return *v;
  if (const auto* v = value.as_string()) return *v;
  if (const auto* v = value.as_dtype()) return {{"dtype", dtype_name(*v)}};
  if (const auto* v = value.as_list()) {
    Json list = Json::array();
    for (const Value& each : *v) list.push_back(json_of(each));
    return list;
  }
  if (const auto* v = value.as_sum()) {
    Json fields = Json::object();
    for (const auto& [name, field] : v->fields) fields[name] = json_of(field);
    return {{"type", v->type}, {"constructor", v->constructor}, {"fields", std::move(fields)}};
  }
  return nullptr;
}

std::string_view base_name(TypeExpr::Base base) {
  constexpr std::string_view kNames[] = {"int",  "bool",  "float", "str",
                                         "enum", "dtype", "list",  "sum"};
  return kNames[static_cast<size_t>(base)];
}

Json json_of(const TypeExpr& type) {
  Json json{{"kind", base_name(type.base)}, {"nullable", type.nullable}, {"text", type.text}};
  if (type.base == TypeExpr::Base::kEnum) json["enumerators"] = type.enumerators;
  if (type.element != nullptr) json["element"] = json_of(*type.element);
  if (type.sum != nullptr) json["sum"] = type.sum->name;
  return json;
}

/// With the default only where there is one: a default of None is no lack of one.
Json declared(const std::string& name, const TypeExpr& type, const std::optional<Value>& value) {
  Json json{{"name", name}, {"type", json_of(type)}};
  if (value) json["default"] = json_of(*value);
  return json;
}

Json params_json(const EntryImpl& entry) {
  Json json = Json::array();
  for (size_t i = 0; i < entry.params.size(); ++i) {
    const ParamDecl& param = entry.params[i];
    Json each = declared(param.name, entry.param_types[i], param.default_value);
    each["keyword_only"] = param.keyword_only;
    each["execution"] = param.execution;
    each["doc"] = param.doc;
    json.push_back(std::move(each));
  }
  return json;
}

Json when_json(const EntryImpl& entry, const std::vector<Condition>& when) {
  Json json = Json::array();
  for (const Condition& condition : when) {
    const Discriminant& by = entry.discriminants[static_cast<size_t>(condition.discriminant)];
    json.push_back({by.text, by.labels[static_cast<size_t>(condition.label)]});
  }
  return json;
}

Json shapes_json(const EntryImpl& entry, const Cases<ShapeDecl>& shapes) {
  Json json = Json::array();
  for (const Case<ShapeDecl>& each : shapes) {
    Json terms = Json::array();
    for (const ShapeTerm& term : each.value.terms) {
      terms.push_back((term.segment ? "*" : "") + term.text);
    }
    json.push_back({{"when", when_json(entry, each.when)}, {"terms", std::move(terms)}});
  }
  return json;
}

Json dtypes_json(const EntryImpl& entry, const Cases<DTypeDecl>& dtypes) {
  Json json = Json::array();
  for (const Case<DTypeDecl>& each : dtypes) {
    json.push_back({{"when", when_json(entry, each.when)}, {"dtype", each.value.text}});
  }
  return json;
}

Json optional_text(const std::optional<Formula>& formula) {
  return formula ? Json(formula->expr.text) : Json();
}

Json tensors_json(const EntryImpl& entry, const std::vector<TensorDecl>& decls,
                  const std::vector<TensorSpec>& specs) {
  Json json = Json::array();
  for (size_t i = 0; i < decls.size(); ++i) {
    const TensorDecl& decl = decls[i];
    const TensorSpec& spec = specs[i];
    json.push_back({{"name", decl.name},
                    {"doc", decl.doc},
                    {"shape_text", decl.shape_text},
                    {"dtype_text", decl.dtype_text},
                    {"shapes", shapes_json(entry, spec.shapes)},
                    {"dtypes", dtypes_json(entry, spec.dtypes)},
                    {"optional", decl.optional},
                    {"keyword_only", decl.keyword_only},
                    {"buffer_out", decl.buffer_out},
                    {"mutated", decl.mutated},
                    {"mutated_when", optional_text(spec.mutated)},
                    {"when", optional_text(spec.when)},
                    {"metadata", decl.metadata},
                    {"contiguous", decl.contiguous},
                    {"on_cpu", decl.on_cpu},
                    {"group", spec.group},
                    {"alias", spec.alias < 0 ? Json() : Json(entry.inputs[spec.alias].name)}});
  }
  return json;
}

std::string_view kind_name(IndexValue::Kind kind) {
  constexpr std::string_view kNames[] = {"unknown", "Dim", "DType", "Seq"};
  return kNames[static_cast<size_t>(kind)];
}

Json indices_json(const EntryImpl& entry) {
  Json json = Json::array();
  for (size_t i = 0; i < entry.indices.size(); ++i) {
    json.push_back({{"name", entry.indices[i].name},
                    {"kind", kind_name(entry.indices[i].kind)},
                    {"let", optional_text(entry.index_specs[i].let)}});
  }
  return json;
}

Json stages_json(const EntryImpl& entry) {
  Json json = Json::array();
  for (const Stage& stage : entry.composition) {
    json.push_back({{"name", stage.name},
                    {"op", stage.op},
                    {"kernel", stage.kernel},
                    {"optional", stage.optional}});
  }
  return json;
}

}  // namespace

std::string entry_json(const Entry& entry) {
  const EntryImpl& impl = entry.impl();
  Json rules = Json::array(), discriminants = Json::array();
  for (const Formula& rule : impl.rules) rules.push_back(rule.expr.text);
  for (const Discriminant& by : impl.discriminants) {
    discriminants.push_back({{"text", by.text}, {"labels", by.labels}});
  }
  const Json json{{"name", impl.name},
                  {"family", impl.family},
                  {"namespace", impl.operator_namespace},
                  {"summary", impl.summary},
                  {"ref_api", impl.ref_api},
                  {"implemented", impl.implemented},
                  {"leaf", entry.has_compile_boundary()},
                  {"params", params_json(impl)},
                  {"indices", indices_json(impl)},
                  {"discriminants", std::move(discriminants)},
                  {"construction", tensors_json(impl, impl.construction, impl.construction_specs)},
                  {"inputs", tensors_json(impl, impl.inputs, impl.input_specs)},
                  {"outputs", tensors_json(impl, impl.outputs, impl.output_specs)},
                  {"rules", std::move(rules)},
                  {"stages", stages_json(impl)}};
  return json.dump();
}

std::string types_json() {
  Json json = Json::object();
  for (const auto& [name, named] : known_types()) {
    Json each = json_of(named.type);
    if (named.type.sum != nullptr) {
      each["constructors"] = Json::array();
      for (const Constructor& constructor : named.type.sum->constructors) {
        Json fields = Json::array();
        for (const FieldDecl& field : constructor.fields) {
          fields.push_back(declared(field.name, field.type, field.default_value));
        }
        each["constructors"].push_back({{"name", constructor.name}, {"fields", std::move(fields)}});
      }
    }
    json[name] = std::move(each);
  }
  return json.dump();
}

}  // namespace tileops::spec
