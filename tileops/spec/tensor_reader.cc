// SPDX-License-Identifier: Apache-2.0
// Tensors of a signature: shapes and dtypes by case, presence, effects.
#include <fmt/format.h>

#include <algorithm>

#include "tileops/spec/entry_reader.h"

namespace tileops::spec {
namespace {

/// "[E, 2 * N, *S]" as its terms; none where it is no bracketed list.
std::optional<std::vector<std::string_view>> split_shape(std::string_view text) {
  text = trim(text);
  if (!text.starts_with('[') || !text.ends_with(']')) return std::nullopt;
  text = text.substr(1, text.size() - 2);
  std::vector<std::string_view> terms;
  if (trim(text).empty()) return terms;
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      terms.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    } else if (text[i] == '(' || text[i] == '[') {
      ++depth;
    } else if (text[i] == ')' || text[i] == ']') {
      --depth;
    }
  }
  return terms;
}

ShapeTerm read_term(std::string_view text, const Scope& scope, const Narrowing& known) {
  ShapeTerm term;
  term.text = text;
  term.segment = text.starts_with('*');
  Expr expr = parse_expr(term.segment ? trim(text.substr(1)) : text);
  const StaticKind kind = check_kinds(expr.root, scope, known);
  term.node = std::move(expr.root);
  if (term.segment && (kind.base != StaticKind::Base::kSeq || term.node.op != ExprOp::kIndex)) {
    throw ExprFault("S302", fmt::format("'{}': a segment is a Shape index", text));
  }
  if (!term.segment && (kind.base != StaticKind::Base::kInt || kind.nullable)) {
    throw ExprFault("S403", fmt::format("'{}' is {}, not a size", text, kind_text(kind)));
  }
  if (term.node.op == ExprOp::kIndex) term.index = term.node.slot;
  return term;
}

class TensorReader {
 public:
  TensorReader(EntryContext& context, const YamlNode& node, const Place& place, TensorDecl& decl,
               TensorSpec& spec, bool output)
      : context_(context), node_(node), place_(place), decl_(decl), spec_(spec), output_(output) {}

  void run() {
    spec_.line = node_.line;
    const bool readable =
        output_
            ? check_keys(node_, {"dtype", "shape", "doc", "buffer", "when", "alias", "device"},
                         place_, context_.report)
            : check_keys(node_,
                         {"dtype", "shape", "doc", "optional", "nullable", "keyword_only", "group",
                          "mutated", "write_only", "metadata", "contiguous", "device", "requires"},
                         place_, context_.report);
    if (!readable) return;
    read_shape_field();
    read_dtype_field();
    read_device();
    if (const YamlNode* doc = node_.find("doc")) decl_.doc = doc->scalar;
    if (output_) {
      read_output();
    } else {
      read_input();
    }
  }

 private:
  Place at(std::string_view name) const {
    const YamlNode* part = node_.find(name);
    return place_.at(name, part == nullptr ? 0 : part->line);
  }
  Report& report() { return context_.report; }

  void read_shape_field() {
    const YamlNode* node = node_.find("shape");
    if (node == nullptr) return report().add("S107", at("shape"), "its shape is missing");
    walk_family(context_, *node, at("shape"),
                [&](const YamlNode& leaf, const auto& when, const Narrowing& known,
                    const Place& place) { read_shape(leaf, when, known, place); });
  }

  void read_shape(const YamlNode& leaf, const std::vector<Condition>& when, const Narrowing& known,
                  const Place& place) {
    const auto text = read_text(leaf, place, report());
    if (!text) return;
    const auto terms = split_shape(*text);
    if (!terms) {
      return report().add("S302", place, fmt::format("'{}' is no shape: [E, 2 * N, *S]", *text));
    }
    ShapeDecl shape;
    shape.text = *text;
    try {
      for (std::string_view term : *terms) {
        shape.terms.push_back(read_term(term, context_.entry.scope, known));
        if (!shape.terms.back().segment) continue;
        if (shape.segment >= 0 && !output_) {
          return report().add("S309", place, fmt::format("'{}' has two segments", *text));
        }
        shape.segment = static_cast<int>(shape.terms.size()) - 1;
      }
    } catch (const ExprFault& fault) {
      return report().add(fault.code, place, fmt::format("'{}': {}", *text, fault.what()));
    }
    if (shape.terms.size() > kMaxRank) {
      return report().add("S302", place, fmt::format("more than {} dimensions", kMaxRank));
    }
    decl_.shape_text += decl_.shape_text.empty() ? *text : " | " + *text;
    spec_.shapes.push_back({when, std::move(shape)});
  }

  void read_dtype_field() {
    const YamlNode* node = node_.find("dtype");
    if (node == nullptr) return report().add("S107", at("dtype"), "its dtype is missing");
    walk_family(context_, *node, at("dtype"),
                [&](const YamlNode& leaf, const auto& when, const Narrowing& known,
                    const Place& place) { read_dtype(leaf, when, known, place); });
  }

  void read_dtype(const YamlNode& leaf, const std::vector<Condition>& when, const Narrowing& known,
                  const Place& place) {
    const auto text = read_text(leaf, place, report());
    if (!text) return;
    DTypeDecl dtype;
    dtype.text = *text;
    decl_.dtype_text += decl_.dtype_text.empty() ? *text : " | " + *text;
    if (const auto set = dtype_set(*text)) {
      if (output_ && (*set & (*set - 1)) != 0) {
        return report().add("S303", place, "an output has one dtype");
      }
      dtype.dtypes = *set;
      spec_.dtypes.push_back({when, std::move(dtype)});
      return;
    }
    auto formula = read_formula(leaf, context_.entry.scope, known, place, report());
    if (!formula) return;
    const StaticKind kind = check_kinds(formula->expr.root, context_.entry.scope, known);
    if (kind.base != StaticKind::Base::kDType || kind.nullable) {
      return report().add("S303", place,
                          fmt::format("'{}' is no dtype but {}", *text, kind_text(kind)));
    }
    dtype.node = std::move(formula->expr.root);
    if (dtype.node.op == ExprOp::kIndex) dtype.index = dtype.node.slot;
    spec_.dtypes.push_back({when, std::move(dtype)});
  }

  static std::optional<uint32_t> dtype_set(std::string_view text) {
    uint32_t set = 0;
    while (true) {
      const size_t bar = text.find('|');
      const std::string_view part = trim(text.substr(0, bar));
      const auto dtype = parse_dtype(part);
      if (!dtype || dtype_name(*dtype) != part) return std::nullopt;
      set |= dtype_bit(*dtype);
      if (bar == std::string_view::npos) return set;
      text.remove_prefix(bar + 1);
    }
  }

  void read_device() {
    const YamlNode* node = node_.find("device");
    if (node == nullptr) return;
    decl_.on_cpu = node->scalar == "cpu";
    if (!decl_.on_cpu) {
      report().add("S317", at("device"), fmt::format("device is cpu, not '{}'", node->scalar));
    }
  }

  void read_output() {
    if (const YamlNode* node = node_.find("buffer")) {
      decl_.buffer_out = node->scalar == "out";
      if (!decl_.buffer_out) report().add("S501", at("buffer"), "buffer is out");
    }
    if (const YamlNode* node = node_.find("when")) {
      spec_.when = read_predicate(*node, context_.entry.scope, {}, at("when"), report());
    }
    const YamlNode* alias = node_.find("alias");
    if (alias == nullptr) return;
    const auto& inputs = context_.entry.inputs;
    const auto it = std::find_if(inputs.begin(), inputs.end(), [&](const TensorDecl& input) {
      return input.name == alias->scalar;
    });
    if (it == inputs.end()) {
      return report().add("S503", at("alias"),
                          fmt::format("no input is named '{}'", alias->scalar));
    }
    spec_.alias = static_cast<int>(it - inputs.begin());
    if (decl_.buffer_out) {
      report().add("S504", at("alias"), "an output that is an input has no buffer of its own");
    }
  }

  void read_input() {
    const auto flag = [&](std::string_view name) {
      return read_flag(node_.find(name), at(name), report());
    };
    flag("optional");
    spec_.nullable = flag("nullable");
    decl_.keyword_only = flag("keyword_only");
    decl_.metadata = flag("metadata");
    decl_.contiguous = flag("contiguous");
    spec_.write_only = flag("write_only");
    if (const YamlNode* node = node_.find("group")) spec_.group = node->scalar;
    if (const YamlNode* node = node_.find("mutated")) read_mutated(*node);
    if (spec_.write_only && !decl_.mutated) {
      report().add("S505", at("write_only"), "what is only written is mutated");
    }
    if (const YamlNode* node = node_.find("requires")) read_requires(*node);
  }

  void read_mutated(const YamlNode& node) {
    if (node.scalar == "true" || node.scalar == "false") {
      decl_.mutated = node.scalar == "true";
      return;
    }
    decl_.mutated = true;
    spec_.mutated = read_predicate(node, context_.entry.scope, {}, at("mutated"), report());
  }

  void read_requires(const YamlNode& node) {
    walk_family(context_, node, at("requires"),
                [&](const YamlNode& leaf, const auto& when, Narrowing known, const Place& place) {
                  known.present.insert(decl_.name);
                  read_requirements(leaf, when, known, place);
                });
  }

  void read_requirements(const YamlNode& leaf, const std::vector<Condition>& when,
                         const Narrowing& known, const Place& place) {
    Scope scope = context_.entry.scope;
    scope.contents = true;
    std::vector<Formula> list;
    const auto read = [&](const YamlNode& node) {
      Place here = place;
      here.line = node.line;
      auto predicate = read_predicate(node, scope, known, here, report());
      if (!predicate) return;
      const auto names = names_of(predicate->expr.root);
      if (std::find(names.begin(), names.end(), decl_.name) == names.end()) {
        report().add("S408", here, fmt::format("'{}' says nothing of {}", node.scalar, decl_.name));
      }
      list.push_back(std::move(*predicate));
    };
    if (leaf.is_list()) {
      for (const YamlNode& item : leaf.items) read(item);
    } else {
      read(leaf);
    }
    spec_.requirements.push_back({when, std::move(list)});
  }

  EntryContext& context_;
  const YamlNode& node_;
  Place place_;
  TensorDecl& decl_;
  TensorSpec& spec_;
  bool output_;
};

}  // namespace

void read_tensors(EntryContext& context, const YamlNode& node, const Place& place,
                  std::vector<TensorDecl>& decls, std::vector<TensorSpec>& specs, bool output) {
  specs.resize(decls.size());
  for (size_t i = 0; i < decls.size(); ++i) {
    const auto& [name, value] = node.members[i];
    TensorReader(context, value, place.at(name, value.line), decls[i], specs[i], output).run();
  }
}

}  // namespace tileops::spec
