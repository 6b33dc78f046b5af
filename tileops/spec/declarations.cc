// SPDX-License-Identifier: Apache-2.0
// Parameters, indices, `let` and composition of an entry.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tileops/spec/entry_reader.h"

namespace tileops::spec {
namespace {

/// Adds a name to the scope; S205 where something else has it already.
bool declare(EntryContext& context, const std::string& name, Symbol symbol, const Place& place) {
  const bool dtype = parse_dtype(name).has_value();
  if (!is_identifier(name) || dtype || name == "None" || name == "true" || name == "false") {
    context.report.add("S110", place, fmt::format("'{}' is no name", name));
    return false;
  }
  if (!context.entry.scope.symbols.try_emplace(name, symbol).second) {
    context.report.add("S210", place, fmt::format("two things are named '{}'", name));
    return false;
  }
  return true;
}

void read_param(EntryContext& context, const std::string& name, const YamlNode& node,
                const Place& place) {
  EntryImpl& entry = context.entry;
  ParamDecl decl;
  decl.name = name;
  const YamlNode* type_node = &node;
  const bool full = node.is_map() && node.find("enum") == nullptr;
  if (full) {
    check_keys(node, {"type", "default", "keyword_only", "execution", "doc"}, place,
               context.report);
    type_node = node.find("type");
    if (type_node == nullptr) {
      context.report.add("S107", place, "its type is missing");
      return;
    }
    decl.keyword_only = read_flag(node.find("keyword_only"), place, context.report);
    decl.execution = read_flag(node.find("execution"), place, context.report);
    if (const YamlNode* doc = node.find("doc")) decl.doc = doc->scalar;
  }
  auto type = read_type(*type_node, context.types, place, context.report);
  if (!type) return;
  decl.type_text = type->text;
  if (const YamlNode* value = full ? node.find("default") : nullptr) {
    try {
      decl.default_value = value_from_yaml(*value, *type);
    } catch (const ExprFault& fault) {
      context.report.add(fault.code, place.at("default", value->line), fault.what());
    }
  }
  entry.params.push_back(std::move(decl));
  entry.param_types.push_back(std::move(*type));
}

std::optional<uint32_t> dtype_set(std::string_view text) {
  uint32_t set = 0;
  while (!text.empty()) {
    const size_t bar = text.find('|');
    std::string_view part = text.substr(0, bar);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    const auto dtype = parse_dtype(part);
    if (!dtype || dtype_name(*dtype) != part) return std::nullopt;
    set |= dtype_bit(*dtype);
    if (bar == std::string_view::npos) break;
    text.remove_prefix(bar + 1);
  }
  return set;
}

bool read_index_kind(const std::string& text, IndexDecl& decl, IndexSpec& spec) {
  if (text == "Dim") {
    decl.kind = IndexValue::Kind::kDim;
  } else if (text == "Shape" || text == "Seq[Int]") {
    decl.kind = IndexValue::Kind::kSeq;
  } else if (text == "DType") {
    decl.kind = IndexValue::Kind::kDType;
    spec.dtypes = kAllDTypes;
  } else if (text.starts_with("DType[") && text.ends_with("]")) {
    decl.kind = IndexValue::Kind::kDType;
    const auto set = dtype_set(std::string_view(text).substr(6, text.size() - 7));
    spec.dtypes = set.value_or(0);
  }
  return decl.kind != IndexValue::Kind::kUnknown &&
         (decl.kind != IndexValue::Kind::kDType || spec.dtypes != 0);
}

StaticKind index_kind(IndexValue::Kind kind) {
  switch (kind) {
    case IndexValue::Kind::kDim:
      return {StaticKind::Base::kInt};
    case IndexValue::Kind::kDType:
      return {StaticKind::Base::kDType};
    default:
      return {StaticKind::Base::kSeq};
  }
}

/// Reads `let` in dependency order; what is left when nothing more can be read is a circle.
class LetReader {
 public:
  LetReader(EntryContext& context, const YamlNode& node, const Place& place)
      : context_(context), node_(node), place_(place) {}

  void run() {
    for (const auto& [name, value] : node_.members) {
      if (auto parsed = parse(name, value)) pending_.push_back(std::move(*parsed));
    }
    while (!pending_.empty()) {
      const size_t before = pending_.size();
      std::erase_if(pending_, [&](const Pending& each) { return ready(each) && define(each); });
      if (pending_.size() == before) break;
    }
    for (const Pending& each : pending_) {
      context_.report.add("S406", at(each), fmt::format("{} is defined in a circle", each.name));
    }
  }

 private:
  struct Pending {
    std::string name;
    const YamlNode* node;
    std::vector<std::string> reads;
  };

  Place at(const Pending& each) const { return place_.at(each.name, each.node->line); }

  std::optional<Pending> parse(const std::string& name, const YamlNode& value) {
    const Place place = place_.at(name, value.line);
    const auto text = read_text(value, place, context_.report);
    if (!text) return std::nullopt;
    try {
      return Pending{name, &value, names_of(parse_expr(*text).root)};
    } catch (const ExprFault& fault) {
      context_.report.add(fault.code, place, fmt::format("'{}': {}", *text, fault.what()));
      return std::nullopt;
    }
  }

  bool ready(const Pending& each) const {
    return std::none_of(each.reads.begin(), each.reads.end(), [&](const std::string& name) {
      return std::any_of(pending_.begin(), pending_.end(),
                         [&](const Pending& other) { return other.name == name; });
    });
  }

  bool define(const Pending& each) {
    EntryImpl& entry = context_.entry;
    auto formula = read_formula(*each.node, entry.scope, {}, at(each), context_.report);
    if (!formula) return true;
    const StaticKind kind = check_kinds(formula->expr.root, entry.scope, {});
    IndexDecl decl{each.name, IndexValue::Kind::kDim, true};
    if (kind.base == StaticKind::Base::kDType) decl.kind = IndexValue::Kind::kDType;
    if (kind.base == StaticKind::Base::kSeq || kind.base == StaticKind::Base::kList) {
      decl.kind = IndexValue::Kind::kSeq;
    }
    const bool fits = decl.kind != IndexValue::Kind::kDim || kind.base == StaticKind::Base::kInt;
    if (!fits || kind.nullable) {
      context_.report.add(
          "S403", at(each),
          fmt::format("let names a size, a shape or a dtype, not {}", kind_text(kind)));
      return true;
    }
    const auto slot = static_cast<int32_t>(entry.indices.size());
    if (!declare(context_, each.name, {ExprOp::kIndex, slot, index_kind(decl.kind)}, at(each))) {
      return true;
    }
    entry.indices.push_back(std::move(decl));
    entry.index_specs.push_back({kAllDTypes, std::move(*formula), each.node->line});
    entry.let_order.push_back(slot);
    return true;
  }

  EntryContext& context_;
  const YamlNode& node_;
  Place place_;
  std::vector<Pending> pending_;
};

void read_stage(EntryContext& context, const YamlNode& node, const Place& place) {
  if (!node.is_map()) {
    context.report.add("S105", place, "a stage is a mapping");
    return;
  }
  for (const auto& [key, value] : node.members) {
    if (key == "name" || key == "op" || key == "kernel" || key == "optional") continue;
    context.report.add("S801", place.at(key, value.line),
                       fmt::format("a stage has no field '{}': name, op, kernel, optional", key));
  }
  Stage stage;
  const auto text = [&](std::string_view key, std::string& into) {
    if (const YamlNode* part = node.find(key)) {
      into = read_text(*part, place.at(key, part->line), context.report).value_or("");
    }
  };
  text("name", stage.name);
  text("op", stage.op);
  text("kernel", stage.kernel);
  if (const YamlNode* part = node.find("optional")) {
    if (part->quoted || (part->scalar != "true" && part->scalar != "false")) {
      context.report.add("S806", place, "optional is true or false");
    }
    stage.optional = part->scalar == "true";
  }
  if (!is_identifier(stage.name)) context.report.add("S802", place, "a stage has a name");
  if (stage.op.empty() == stage.kernel.empty()) {
    context.report.add("S804", place,
                       fmt::format("stage {} names exactly one of op and kernel", stage.name));
  }
  for (const Stage& other : context.entry.composition) {
    if (other.name == stage.name) {
      context.report.add("S803", place, fmt::format("two stages are named {}", stage.name));
    }
  }
  context.entry.composition.push_back(std::move(stage));
  context.entry.stage_lines.push_back(node.line);
}

}  // namespace

void read_params(EntryContext& context, const YamlNode& node, const Place& place) {
  if (!node.is_map()) {
    context.report.add("S105", place, "params is a mapping");
    return;
  }
  for (const auto& [name, value] : node.members) {
    read_param(context, name, value, place.at(name, value.line));
  }
  EntryImpl& entry = context.entry;
  for (size_t i = 0; i < entry.params.size(); ++i) {
    Symbol symbol{ExprOp::kParam, static_cast<int32_t>(i), kind_of(entry.param_types[i]),
                  entry.params[i].execution};
    declare(context, entry.params[i].name, symbol, place.at(entry.params[i].name, 0));
  }
}

void read_indices(EntryContext& context, const YamlNode& forall, const Place& place) {
  if (!forall.is_map()) {
    context.report.add("S105", place, "forall is a mapping");
    return;
  }
  for (const auto& [name, value] : forall.members) {
    const Place at = place.at(name, value.line);
    IndexDecl decl{name};
    IndexSpec spec{0, std::nullopt, value.line};
    if (!value.is_scalar() || !read_index_kind(value.scalar, decl, spec)) {
      context.report.add(
          "S301", at,
          fmt::format("'{}' is no kind: Dim, Shape, DType[...] or Seq[Int]", value.scalar));
      continue;
    }
    const auto slot = static_cast<int32_t>(context.entry.indices.size());
    if (!declare(context, name, {ExprOp::kIndex, slot, index_kind(decl.kind)}, at)) continue;
    context.entry.indices.push_back(std::move(decl));
    context.entry.index_specs.push_back(std::move(spec));
  }
}

void read_lets(EntryContext& context, const YamlNode& node, const Place& place) {
  if (!node.is_map()) {
    context.report.add("S105", place, "let is a mapping");
    return;
  }
  if (node.members.size() > kMaxIndices) {
    context.report.add("S310", place, fmt::format("more than {} indices", kMaxIndices));
    return;
  }
  LetReader(context, node, place).run();
}

void declare_tensors(EntryContext& context, const YamlNode& node, const Place& place,
                     std::vector<TensorDecl>& decls, ExprOp op, int32_t base) {
  if (!node.is_map()) {
    context.report.add("S105", place, "tensors are a mapping");
    return;
  }
  for (const auto& [name, value] : node.members) {
    TensorDecl decl;
    decl.name = name;
    if (value.is_map()) {
      const YamlNode* when = value.find("when");
      const auto flag = [&spec = value](std::string_view key) {
        const YamlNode* part = spec.find(key);
        return part != nullptr && part->scalar == "true";
      };
      decl.optional = flag("optional") || flag("nullable") || when != nullptr;
    }
    StaticKind kind{StaticKind::Base::kTensor, decl.optional};
    Symbol symbol{op, base + static_cast<int32_t>(decls.size()), kind};
    if (op == ExprOp::kNone) {
      // An output's name is taken, though no expression can read it.
      if (!is_identifier(name) || context.entry.scope.symbols.contains(name)) {
        context.report.add("S210", place.at(name, value.line),
                           fmt::format("'{}' is taken or no name", name));
      }
    } else {
      declare(context, name, symbol, place.at(name, value.line));
    }
    decls.push_back(std::move(decl));
  }
}

void read_composition(EntryContext& context, const YamlNode& node, const Place& place) {
  const YamlNode* stages = node.find("stages");
  for (size_t i = 0; i < node.members.size(); ++i) {
    if (node.members[i].first != "stages") {
      context.report.add("S801", place.at(node.members[i].first, node.key_lines[i]),
                         "composition holds stages alone");
    }
  }
  if (stages == nullptr || !stages->is_list() || stages->items.empty()) {
    context.report.add("S807", place, "composition holds a list of stages that is not empty");
    return;
  }
  for (const YamlNode& stage : stages->items) {
    Place at = place.at("stages", stage.line);
    read_stage(context, stage, at);
  }
}

}  // namespace tileops::spec
