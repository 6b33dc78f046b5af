// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tileops/spec/validator_passes.h"

namespace tileops::spec {
namespace {

Place stage_place(const EntryImpl& entry, std::string_view stage) {
  for (size_t i = 0; i < entry.composition.size(); ++i) {
    if (entry.composition[i].name == stage) {
      return {entry.name, fmt::format("composition.stages.{}", stage), entry.stage_lines[i]};
    }
  }
  return {entry.name, "composition.stages", entry.line};
}

bool reaches(const EntryImpl& from, const std::string& target, const EntryLookup& lookup,
             std::set<std::string>& seen) {
  for (const Stage& stage : from.composition) {
    if (stage.op.empty()) continue;
    if (stage.op == target) return true;
    if (!seen.insert(stage.op).second) continue;
    const auto below = lookup(stage.op);
    if (below != nullptr && reaches(*below, target, lookup, seen)) return true;
  }
  return false;
}

void collect_staged(const ExprNode& node, std::vector<std::string>& stages) {
  if (node.op == ExprOp::kCall && static_cast<Primitive>(node.slot) == Primitive::kStaged) {
    stages.push_back(node.kids[0].text);
  }
  for (const ExprNode& kid : node.kids) collect_staged(kid, stages);
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

const std::string* find(const Pairs& pairs, std::string_view name) {
  for (const auto& [key, value] : pairs) {
    if (key == name) return &value;
  }
  return nullptr;
}

/// Compares the op stages of the entry with the class's delegate_types.
class StageComparison {
 public:
  StageComparison(const EntryImpl& entry, const Pairs& held, Report& report)
      : entry_(entry), held_(held), report_(report) {
    for (const Stage& stage : entry.composition) {
      if (!stage.op.empty()) said_.emplace_back(stage.name, stage.op);
    }
  }

  void run() {
    bool same_names = said_.size() == held_.size();
    for (size_t i = 0; i < said_.size(); ++i) {
      const auto& [name, op] = said_[i];
      const std::string* held = find(held_, name);
      if (held == nullptr) {
        same_names = false;
        missing(i);
      } else if (*held != op) {
        report_.add("S811", stage_place(entry_, name),
                    fmt::format("stage {} is {}; the class holds {}", name, op, *held));
      }
    }
    for (size_t i = 0; i < held_.size(); ++i) {
      if (find(said_, held_[i].first) != nullptr || renamed(i)) continue;
      same_names = false;
      report_.add(
          "S809", stage_place(entry_, ""),
          fmt::format("the class holds stage {}, which the composition lacks", held_[i].first));
    }
    if (same_names) order();
  }

 private:
  /// Whether position i has one op under two names that the other side does not know.
  bool renamed(size_t i) const {
    return i < said_.size() && i < held_.size() && said_[i].second == held_[i].second &&
           find(held_, said_[i].first) == nullptr && find(said_, held_[i].first) == nullptr;
  }

  void missing(size_t i) {
    const Place place = stage_place(entry_, said_[i].first);
    if (renamed(i)) {
      report_.add("S817", place,
                  fmt::format("stage {} is named {} by the class", said_[i].first, held_[i].first));
    } else {
      report_.add("S808", place, fmt::format("the class holds no stage {}", said_[i].first));
    }
  }

  void order() {
    for (size_t i = 0; i < said_.size(); ++i) {
      if (said_[i].first == held_[i].first) continue;
      report_.add("S810", stage_place(entry_, said_[i].first),
                  fmt::format("stage {} comes here; the class has {} in this place", said_[i].first,
                              held_[i].first));
      return;
    }
  }

  const EntryImpl& entry_;
  const Pairs& held_;
  Report& report_;
  Pairs said_;
};

void check_params(const EntryImpl& entry, const ClassFacts& facts, Report& report) {
  std::vector<std::string> said;
  for (const ParamDecl& param : entry.params) said.push_back(param.name);
  for (const std::string& name : facts.injected) {
    if (std::find(said.begin(), said.end(), name) != said.end()) {
      report.add("S818", {entry.name, "signature.params." + name, entry.line},
                 fmt::format("{} is injected: it is no parameter of the spec", name));
    }
  }
  if (said != facts.params) {
    report.add("S814", {entry.name, "signature.params", entry.line},
               fmt::format("the spec's parameters are [{}]; the class's are [{}]",
                           fmt::join(said, ", "), fmt::join(facts.params, ", ")));
  }
}

}  // namespace

void check_composition(const EntryImpl& entry, const EntryLookup& lookup, Report& report) {
  for (const Stage& stage : entry.composition) {
    if (stage.op.empty()) continue;
    const Place place = stage_place(entry, stage.name);
    const auto below = lookup(stage.op);
    if (below == nullptr) {
      report.add("S805", place, fmt::format("there is no entry {}", stage.op));
      continue;
    }
    std::set<std::string> seen;
    if (stage.op == entry.name || reaches(*below, entry.name, lookup, seen)) {
      report.add("S816", place, fmt::format("{} contains {} in a circle", entry.name, stage.op));
    }
  }
  for (const auto* formula : {&entry.flops, &entry.bytes}) {
    std::vector<std::string> stages;
    if (*formula) collect_staged((*formula)->expr.root, stages);
    for (const std::string& name : stages) {
      const bool known = std::any_of(entry.composition.begin(), entry.composition.end(),
                                     [&](const Stage& stage) { return stage.name == name; });
      if (known) continue;
      report.add("S705", {entry.name, (*formula)->field, (*formula)->line},
                 fmt::format("staged() names '{}', which is no stage", name));
    }
  }
}

void check_class(const EntryImpl& entry, const ClassLookup& classes, Report& report) {
  const ClassFacts* facts = classes(entry.name);
  if (facts == nullptr) {
    report.add("S815", {entry.name, "status", entry.line},
               "the entry is implemented, but no class has its name");
    return;
  }
  StageComparison(entry, facts->delegates, report).run();
  std::vector<std::string> kernels;
  for (const Stage& stage : entry.composition) {
    if (!stage.kernel.empty()) kernels.push_back(stage.kernel);
  }
  if (entry.composition.empty()) kernels = facts->kernel_keys;  // a leaf's kernels are no stages
  if (kernels != facts->kernel_keys) {
    report.add("S812", stage_place(entry, ""),
               fmt::format("the kernel stages are [{}]; the class's kernels are [{}]",
                           fmt::join(kernels, ", "), fmt::join(facts->kernel_keys, ", ")));
  }
  check_params(entry, *facts, report);
}

}  // namespace tileops::spec
