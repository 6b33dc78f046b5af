// SPDX-License-Identifier: Apache-2.0
// Type families: {by: discriminant, cases: {label: leaf or family}}.
#include <fmt/format.h>

#include <algorithm>

#include "tileops/spec/entry_reader.h"

namespace tileops::spec {
namespace {

std::optional<std::vector<std::string>> labels_of(const ExprNode& node, const StaticKind& kind) {
  if (kind.base == StaticKind::Base::kBool) return std::vector<std::string>{"false", "true"};
  if (kind.type == nullptr || path_of(node).empty()) return std::nullopt;
  std::vector<std::string> labels;
  if (kind.base == StaticKind::Base::kSum) {
    for (const Constructor& each : kind.type->sum->constructors) labels.push_back(each.name);
  } else if (kind.base == StaticKind::Base::kString && !kind.type->enumerators.empty()) {
    labels = kind.type->enumerators;
  } else {
    return std::nullopt;
  }
  if (kind.type->nullable) labels.emplace_back("None");
  return labels;
}

class Walker {
 public:
  Walker(EntryContext& context, const LeafReader& leaf) : context_(context), leaf_(leaf) {}

  void walk(const YamlNode& node, const std::vector<Condition>& when, const Narrowing& known,
            const Place& place) {
    if (!node.is_map() || node.find("by") == nullptr) return leaf_(node, when, known, place);
    check_keys(node, {"by", "cases"}, place, context_.report);
    const int discriminant = read_discriminant(*node.find("by"), known, place);
    const YamlNode* cases = node.find("cases");
    if (cases == nullptr || !cases->is_map()) {
      context_.report.add("S107", place, "cases are missing");
      return;
    }
    if (discriminant < 0) return;
    check_exhaustive(discriminant, *cases, known, place);
    for (const auto& [label, below] : cases->members) {
      const auto& labels = labels_at(discriminant);
      const auto it = std::find(labels.begin(), labels.end(), label);
      if (it == labels.end()) continue;
      std::vector<Condition> deeper = when;
      deeper.push_back({discriminant, static_cast<int>(it - labels.begin())});
      walk(below, deeper, narrowed(discriminant, label, known), place.at(label, below.line));
    }
  }

 private:
  const std::vector<std::string>& labels_at(int discriminant) const {
    return context_.entry.discriminants[static_cast<size_t>(discriminant)].labels;
  }

  int read_discriminant(const YamlNode& node, const Narrowing& known, const Place& outer) {
    const Place place = outer.at("by", node.line);
    const auto formula = read_formula(node, context_.entry.scope, known, place, context_.report);
    if (!formula) return -1;
    Discriminant discriminant;
    discriminant.text = formula->expr.text;
    discriminant.node = formula->expr.root;
    const bool presence = discriminant.node.op == ExprOp::kPresent;
    const ExprNode& subject = presence ? discriminant.node.kids[0] : discriminant.node;
    discriminant.path = path_of(subject);
    const StaticKind kind = check_kinds(discriminant.node, context_.entry.scope, known);
    const auto labels = labels_of(discriminant.node, kind);
    const bool reads_index = subject.op == ExprOp::kIndex;
    if (!labels || discriminant.path.empty() || reads_index) {
      context_.report.add(
          "S305", place,
          fmt::format("'{}' chooses no case: a discriminant is an enum, a bool, a sum "
                      "type or present(x)",
                      discriminant.text));
      return -1;
    }
    discriminant.labels = *labels;
    if (subject.op == ExprOp::kTensor && subject.slot < kConstructionSlot) {
      discriminant.input = subject.slot;
    }
    return intern(std::move(discriminant));
  }

  int intern(Discriminant discriminant) {
    auto& all = context_.entry.discriminants;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].text == discriminant.text) return static_cast<int>(i);
    }
    all.push_back(std::move(discriminant));
    return static_cast<int>(all.size()) - 1;
  }

  bool possible(int discriminant, const std::string& label, const Narrowing& known) const {
    const Discriminant& d = context_.entry.discriminants[static_cast<size_t>(discriminant)];
    if (label == "None") return !known.present.contains(d.path);
    const auto it = known.constructors.find(d.path);
    return it == known.constructors.end() || it->second.contains(label);
  }

  void check_exhaustive(int discriminant, const YamlNode& cases, const Narrowing& known,
                        const Place& place) {
    const auto& labels = labels_at(discriminant);
    std::vector<std::string> missing;
    for (const std::string& label : labels) {
      if (possible(discriminant, label, known) && cases.find(label) == nullptr) {
        missing.push_back(label);
      }
    }
    if (!missing.empty()) {
      context_.report.add("S306", place, fmt::format("no case for {}", fmt::join(missing, ", ")));
    }
    for (size_t i = 0; i < cases.members.size(); ++i) {
      const std::string& label = cases.members[i].first;
      const bool exists = std::find(labels.begin(), labels.end(), label) != labels.end();
      if (exists && possible(discriminant, label, known)) continue;
      context_.report.add(
          "S307", place.at(label, cases.key_lines[i]),
          fmt::format("there is no case '{}'; the cases are {}", label, fmt::join(labels, ", ")));
    }
  }

  Narrowing narrowed(int discriminant, const std::string& label, const Narrowing& known) const {
    const Discriminant& d = context_.entry.discriminants[static_cast<size_t>(discriminant)];
    Narrowing result = known;
    if (d.node.op == ExprOp::kPresent) {
      if (label == "true") result.present.insert(d.path);
      return result;
    }
    if (label != "None") result.present.insert(d.path);
    if (d.node.op == ExprOp::kParam || d.node.op == ExprOp::kField) {
      result.constructors[d.path] = {label};
    }
    return result;
  }

  EntryContext& context_;
  const LeafReader& leaf_;
};

}  // namespace

void walk_family(EntryContext& context, const YamlNode& node, const Place& place,
                 const LeafReader& leaf) {
  Walker(context, leaf).walk(node, {}, {}, place);
}

}  // namespace tileops::spec
