// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/entry_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tileops::spec {
namespace {

void canonical(const YamlNode& node, std::string& out) {
  if (node.is_scalar()) out += node.scalar + ";";
  for (const YamlNode& item : node.items) canonical(item, out);
  for (const auto& [key, value] : node.members) {
    if (key == "doc") continue;
    out += key + "{";
    canonical(value, out);
    out += "}";
  }
}

void read_combos(EntryContext& context, const YamlNode& node, const Place& place) {
  EntryImpl& entry = context.entry;
  for (const YamlNode& item : node.items) {
    std::vector<std::pair<int, DType>> combo;
    for (const auto& [name, value] : item.members) {
      const auto it =
          std::find_if(entry.indices.begin(), entry.indices.end(),
                       [&name = name](const IndexDecl& index) { return index.name == name; });
      const auto dtype = parse_dtype(value.scalar);
      if (it == entry.indices.end() || it->kind != IndexValue::Kind::kDType || !dtype) {
        context.report.add("S314", place.at(name, item.line),
                           "a dtype combination maps dtype indices to dtypes");
        continue;
      }
      combo.emplace_back(static_cast<int>(it - entry.indices.begin()), *dtype);
    }
    entry.dtype_combos.push_back(std::move(combo));
  }
  if (!node.is_list() || node.items.empty()) {
    context.report.add("S314", place, "dtype_combos is a list of mappings");
  }
}

void read_rules(EntryContext& context, const YamlNode& node, const Place& place) {
  if (!node.is_list()) {
    context.report.add("S105", place, "shape_rules is a list of predicates");
    return;
  }
  for (const YamlNode& item : node.items) {
    Place at = place;
    at.line = item.line;
    auto rule = read_predicate(item, context.entry.scope, {}, at, context.report);
    if (rule) context.entry.rules.push_back(std::move(*rule));
  }
}

void read_signature(EntryContext& context, const YamlNode& node, const Place& place) {
  EntryImpl& entry = context.entry;
  check_keys(node,
             {"forall", "params", "construction_tensors", "inputs", "outputs", "let", "shape_rules",
              "dtype_combos"},
             place, context.report);
  const auto section = [&](std::string_view name, auto&& read) {
    if (const YamlNode* part = node.find(name)) read(*part, place.at(name, part->line));
  };
  section("params", [&](auto& part, auto at) { read_params(context, part, at); });
  section("forall", [&](auto& part, auto at) { read_indices(context, part, at); });
  section("construction_tensors", [&](auto& part, auto at) {
    declare_tensors(context, part, at, entry.construction, ExprOp::kTensor, kConstructionSlot);
  });
  section("inputs", [&](auto& part, auto at) {
    declare_tensors(context, part, at, entry.inputs, ExprOp::kTensor, 0);
  });
  section("outputs", [&](auto& part, auto at) {
    declare_tensors(context, part, at, entry.outputs, ExprOp::kNone, 0);
  });
  section("let", [&](auto& part, auto at) { read_lets(context, part, at); });
  section("construction_tensors", [&](auto& part, auto at) {
    read_tensors(context, part, at, entry.construction, entry.construction_specs, false);
  });
  section("inputs", [&](auto& part, auto at) {
    read_tensors(context, part, at, entry.inputs, entry.input_specs, false);
  });
  section("outputs", [&](auto& part, auto at) {
    read_tensors(context, part, at, entry.outputs, entry.output_specs, true);
  });
  section("shape_rules", [&](auto& part, auto at) { read_rules(context, part, at); });
  section("dtype_combos", [&](auto& part, auto at) { read_combos(context, part, at); });
  if (node.find("outputs") == nullptr) {
    context.report.add("S107", place, "outputs are missing");
  }
  canonical(node, entry.signature_text);
}

void read_roofline(EntryContext& context, const YamlNode& node, const Place& place) {
  EntryImpl& entry = context.entry;
  if (!check_keys(node, {"flops", "bytes"}, place, context.report)) return;
  Scope scope = entry.scope;
  scope.roofline = true;
  const auto read = [&](std::string_view name, std::optional<Formula>& into) {
    const YamlNode* part = node.find(name);
    if (part == nullptr) return;
    into = read_formula(*part, scope, {}, place.at(name, part->line), context.report);
  };
  read("flops", entry.flops);
  read("bytes", entry.bytes);
  if (node.find("flops") == nullptr) context.report.add("S701", place, "flops are missing");
}

void read_head(EntryContext& context, const YamlNode& node, const Place& place) {
  EntryImpl& entry = context.entry;
  const auto text = [&](std::string_view name, std::string& into) {
    if (const YamlNode* part = node.find(name)) {
      into = read_text(*part, place.at(name, part->line), context.report).value_or("");
    }
  };
  text("family", entry.family);
  text("summary", entry.summary);
  text("ref_api", entry.ref_api);
  if (!is_identifier(entry.family)) {
    context.report.add(entry.family.empty() ? "S107" : "S110", place.at("family", 0),
                       entry.family.empty() ? "family is missing" : "family is one word");
  }
  std::string status = "implemented";
  text("status", status);
  entry.implemented = status == "implemented";
  if (status != "implemented" && status != "spec-only") {
    context.report.add("S111", place.at("status", 0),
                       fmt::format("status is implemented or spec-only, not '{}'", status));
  }
}

}  // namespace

bool check_keys(const YamlNode& node, std::initializer_list<std::string_view> allowed,
                const Place& place, Report& report) {
  if (!node.is_map()) {
    report.add("S105", place, "a mapping is needed here");
    return false;
  }
  for (size_t i = 0; i < node.members.size(); ++i) {
    const std::string& key = node.members[i].first;
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      report.add("S106", place.at(key, node.key_lines[i]),
                 fmt::format("there is no field '{}'; here stand: {}", key,
                             fmt::join(allowed.begin(), allowed.end(), ", ")));
    }
  }
  return true;
}

std::optional<std::string> read_text(const YamlNode& node, const Place& place, Report& report) {
  if (node.is_scalar()) return node.scalar;
  report.add("S105", place, "a text is needed here");
  return std::nullopt;
}

bool read_flag(const YamlNode* node, const Place& place, Report& report, bool otherwise) {
  if (node == nullptr) return otherwise;
  if (node->is_scalar() && !node->quoted && (node->scalar == "true" || node->scalar == "false")) {
    return node->scalar == "true";
  }
  report.add("S111", place, "true or false is needed here");
  return otherwise;
}

std::optional<Formula> read_formula(const YamlNode& node, const Scope& scope,
                                    const Narrowing& known, const Place& place, Report& report) {
  const auto text = read_text(node, place, report);
  if (!text) return std::nullopt;
  try {
    Formula formula{parse_expr(*text), place.field, place.line};
    check_kinds(formula.expr.root, scope, known);
    return formula;
  } catch (const ExprFault& fault) {
    report.add(fault.code, place, fmt::format("'{}': {}", *text, fault.what()));
    return std::nullopt;
  }
}

std::optional<Formula> read_predicate(const YamlNode& node, const Scope& scope,
                                      const Narrowing& known, const Place& place, Report& report) {
  auto formula = read_formula(node, scope, known, place, report);
  if (!formula) return std::nullopt;
  const StaticKind kind = check_kinds(formula->expr.root, scope, known);
  if (kind.base == StaticKind::Base::kBool && !kind.nullable) return formula;
  report.add("S407", place,
             fmt::format("'{}' is no predicate: it gives {}", formula->expr.text, kind_text(kind)));
  return std::nullopt;
}

std::shared_ptr<const EntryImpl> read_entry(const std::string& name, const YamlNode& node,
                                            const std::string& operator_namespace,
                                            const TypeTable& types, Report& report) {
  auto entry = std::make_shared<EntryImpl>();
  entry->name = name;
  entry->operator_namespace = operator_namespace;
  entry->source = report.source();
  entry->line = node.line;
  const Place place{name, "", node.line};
  EntryContext context{*entry, types, report};
  if (!is_identifier(name)) {
    report.add("S110", place, fmt::format("'{}' is no name for an op", name));
  }
  if (!check_keys(node,
                  {"family", "status", "summary", "ref_api", "signature", "generators", "workloads",
                   "roofline", "composition"},
                  place, report)) {
    return entry;
  }
  read_head(context, node, place);
  const YamlNode* signature = node.find("signature");
  if (signature == nullptr || !signature->is_map()) {
    report.add("S107", place.at("signature", 0), "signature is missing");
    return entry;
  }
  read_signature(context, *signature, place.at("signature", signature->line));
  if (const YamlNode* part = node.find("composition")) {
    read_composition(context, *part, place.at("composition", part->line));
  }
  if (const YamlNode* part = node.find("roofline")) {
    read_roofline(context, *part, place.at("roofline", part->line));
  } else if (entry->implemented) {
    report.add("S701", place.at("roofline", 0), "roofline is missing");
  }
  read_workloads(context, node.find("generators"), node.find("workloads"), place);
  check_entry(context);
  return entry;
}

}  // namespace tileops::spec
