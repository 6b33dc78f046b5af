// SPDX-License-Identifier: Apache-2.0
// Workload rows and the generators that complete them.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tileops/spec/entry_reader.h"
#include "tileops/spec/generators.h"

namespace tileops::spec {
namespace {

template <class Decls>
int slot_of(const Decls& decls, std::string_view name) {
  for (size_t i = 0; i < decls.size(); ++i) {
    if (decls[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

class GeneratorReader {
 public:
  GeneratorReader(EntryContext& context, const YamlNode& node, const Place& place)
      : context_(context), node_(node), place_(place), loads_(context.entry.workloads) {}

  void run() {
    check_keys(node_, {"args", "indices", "tensors"}, place_, context_.report);
    each("args", [&](auto& name, auto& value, auto at) { read_arg(name, value, at); });
    for (size_t i = 0; i < loads_.args.size(); ++i) {
      const auto slot = static_cast<int32_t>(context_.entry.params.size() + i);
      const bool fresh = loads_.scope.symbols
                             .try_emplace(loads_.args[i].name, Symbol{ExprOp::kParam, slot,
                                                                      kind_of(loads_.args[i].type)})
                             .second;
      if (!fresh) {
        context_.report.add("S210", place_.at("args", 0),
                            fmt::format("two things are named '{}'", loads_.args[i].name));
      }
    }
    each("indices", [&](auto& name, auto& value, auto at) { read_index(name, value, at); });
    each("tensors", [&](auto& name, auto& value, auto at) { read_generator(name, value, at); });
  }

 private:
  template <class Read>
  void each(std::string_view section, Read&& read) {
    const YamlNode* part = node_.find(section);
    if (part == nullptr) return;
    const Place place = place_.at(section, part->line);
    for (const auto& [name, value] : part->members) read(name, value, place.at(name, value.line));
  }

  void read_arg(const std::string& name, const YamlNode& node, const Place& place) {
    const YamlNode* type_node = node.is_map() ? node.find("type") : &node;
    auto type =
        read_type(type_node != nullptr ? *type_node : node, context_.types, place, context_.report);
    if (!type) return;
    ArgDecl arg{name, std::move(*type), std::nullopt};
    if (const YamlNode* value = node.is_map() ? node.find("default") : nullptr) {
      try {
        arg.default_value = value_from_yaml(*value, arg.type);
      } catch (const ExprFault& fault) {
        context_.report.add(fault.code, place, fault.what());
      }
    }
    loads_.args.push_back(std::move(arg));
  }

  void read_index(const std::string& name, const YamlNode& node, const Place& place) {
    const int slot = slot_of(context_.entry.indices, name);
    if (slot < 0 || context_.entry.indices[static_cast<size_t>(slot)].derived) {
      context_.report.add("S608", place, fmt::format("no free index is named '{}'", name));
      return;
    }
    Cases<Formula> cases;
    walk_family(
        context_, node, place,
        [&](const YamlNode& leaf, const auto& when, const Narrowing& known, const Place& at) {
          if (leaf.kind == YamlNode::Kind::kNull) return;  // not determined in this case
          auto formula = read_formula(leaf, loads_.scope, known, at, context_.report);
          if (formula) cases.push_back({when, std::move(*formula)});
        });
    loads_.determined.emplace_back(slot, std::move(cases));
  }

  void read_generator(const std::string& name, const YamlNode& node, const Place& place) {
    const int slot = slot_of(context_.entry.inputs, name);
    if (slot < 0) {
      context_.report.add("S608", place, fmt::format("no input is named '{}'", name));
      return;
    }
    walk_family(
        context_, node, place,
        [&](const YamlNode& leaf, const auto& when, const Narrowing& known, const Place& at) {
          auto call = read_call(leaf, known, at);
          if (call) {
            loads_.generators[static_cast<size_t>(slot)].push_back({when, std::move(*call)});
          }
        });
  }

  std::optional<GeneratorCall> read_call(const YamlNode& node, const Narrowing& known,
                                         const Place& place) {
    const auto text = read_text(node, place, context_.report);
    if (!text) return std::nullopt;
    const size_t open = text->find('(');
    GeneratorCall call{text->substr(0, open), {}, *text};
    const Generator* generator = find_generator(call.name);
    if (generator == nullptr || open == std::string::npos || !text->ends_with(')')) {
      context_.report.add(
          "S607", place,
          fmt::format("there is no generator '{}'; there are: {}", *text, generator_names()));
      return std::nullopt;
    }
    const std::string inside = text->substr(open + 1, text->size() - open - 2);
    try {
      if (!inside.empty()) call.args = parse_expr("(" + inside + ",)").root.kids;
      for (ExprNode& arg : call.args) check_kinds(arg, loads_.scope, known);
    } catch (const ExprFault& fault) {
      context_.report.add(fault.code, place, fmt::format("'{}': {}", *text, fault.what()));
      return std::nullopt;
    }
    const auto count = static_cast<int>(call.args.size());
    if (count < generator->min_args || count > generator->max_args) {
      context_.report.add(
          "S608", place,
          fmt::format("'{}': {} arguments; it takes {}", *text, count, generator->signature));
      return std::nullopt;
    }
    return call;
  }

  EntryContext& context_;
  const YamlNode& node_;
  Place place_;
  Workloads& loads_;
};

class RowReader {
 public:
  RowReader(EntryContext& context, const YamlNode& node, const Place& place,
            std::set<std::string>& labels)
      : context_(context), node_(node), place_(place), labels_(labels) {}

  void run() {
    row_.line = node_.line;
    if (!node_.is_map()) {
      context_.report.add("S105", place_, "a row is a mapping");
      return;
    }
    const YamlNode* label = node_.find("label");
    if (label == nullptr || !label->is_scalar() || label->scalar.empty()) {
      context_.report.add("S601", place_, "a row has a label");
      return;
    }
    row_.label = label->scalar;
    place_ = place_.at(row_.label, node_.line);
    for (size_t i = 0; i < node_.members.size(); ++i) {
      const auto& [key, value] = node_.members[i];
      if (key != "label") read(key, value);
    }
    default_args();
    if (!labels_.insert(row_.label).second) {
      context_.report.add("S602", place_, fmt::format("two rows are named {}", row_.label));
    }
    context_.entry.labels.push_back(row_.label);
    context_.entry.workloads.rows.push_back(std::move(row_));
  }

 private:
  void read(const std::string& key, const YamlNode& value) {
    EntryImpl& entry = context_.entry;
    if (key == "tags") return words(value, row_.tags);
    if (key == "present") return read_present(value);
    if (key == "dtype_cases") return read_dtype_cases(value);
    if (const int slot = slot_of(entry.params, key); slot >= 0) {
      return read_value(key, value, entry.param_types[static_cast<size_t>(slot)], row_.params);
    }
    if (const int slot = slot_of(entry.workloads.args, key); slot >= 0) {
      return read_value(key, value, entry.workloads.args[static_cast<size_t>(slot)].type,
                        row_.args);
    }
    if (const int slot = slot_of(entry.indices, key); slot >= 0) {
      return read_index(key, value, static_cast<size_t>(slot));
    }
    context_.report.add("S603", place_.at(key, value.line),
                        fmt::format("'{}' is no parameter, index or generator argument", key));
  }

  void words(const YamlNode& node, std::vector<std::string>& into) {
    if (!node.is_list()) context_.report.add("S105", place_, "a list of words is needed here");
    for (const YamlNode& item : node.items) into.push_back(item.scalar);
  }

  void read_present(const YamlNode& node) {
    words(node, row_.present);
    for (const std::string& name : row_.present) {
      const int slot = slot_of(context_.entry.inputs, name);
      if (slot >= 0 && context_.entry.inputs[static_cast<size_t>(slot)].optional) continue;
      context_.report.add("S603", place_.at("present", node.line),
                          fmt::format("no optional input is named '{}'", name));
    }
  }

  void read_value(const std::string& key, const YamlNode& node, const TypeExpr& type,
                  Params& into) {
    try {
      into.set(key, value_from_yaml(node, type));
    } catch (const ExprFault& fault) {
      context_.report.add("S605", place_.at(key, node.line), fault.what());
    }
  }

  void read_index(const std::string& key, const YamlNode& node, size_t slot) {
    const IndexDecl& index = context_.entry.indices[slot];
    TypeExpr size;
    size.text = "a size";
    TypeExpr type = size;
    if (index.kind == IndexValue::Kind::kSeq) {
      type.base = TypeExpr::Base::kList;
      type.text = "a list of sizes";
      type.element = std::make_shared<const TypeExpr>(size);
    }
    if (index.derived || index.kind == IndexValue::Kind::kDType) {
      context_.report.add(
          "S603", place_.at(key, node.line),
          fmt::format("{} is {}", key, index.derived ? "derived by let" : "given by dtype_cases"));
      return;
    }
    read_value(key, node, type, row_.indices);
  }

  void read_dtype_cases(const YamlNode& node) {
    const EntryImpl& entry = context_.entry;
    for (const YamlNode& item : node.items) {
      std::vector<std::pair<int, DType>> which;
      for (const auto& [name, value] : item.members) {
        const int slot = slot_of(entry.indices, name);
        const auto dtype = parse_dtype(value.scalar);
        const bool fits = slot >= 0 && dtype &&
                          (entry.index_specs[static_cast<size_t>(slot)].dtypes & dtype_bit(*dtype));
        if (!fits) {
          context_.report.add(
              "S612", place_.at("dtype_cases", item.line),
              fmt::format("{}: {} is no dtype of the signature", name, value.scalar));
          continue;
        }
        which.emplace_back(slot, *dtype);
      }
      row_.dtype_cases.push_back(std::move(which));
    }
    if (!node.is_list() || node.items.empty()) {
      context_.report.add("S612", place_, "dtype_cases is a list of mappings");
    }
  }

  void default_args() {
    for (const ArgDecl& arg : context_.entry.workloads.args) {
      if (row_.args.find(arg.name) != nullptr) continue;
      if (arg.default_value) {
        row_.args.set(arg.name, *arg.default_value);
      } else {
        context_.report.add("S604", place_, fmt::format("the row lacks {}", arg.name));
      }
    }
  }

  EntryContext& context_;
  const YamlNode& node_;
  Place place_;
  std::set<std::string>& labels_;  // of the rows before
  WorkloadRow row_;
};

}  // namespace

void read_workloads(EntryContext& context, const YamlNode* generators, const YamlNode* rows,
                    const Place& place) {
  EntryImpl& entry = context.entry;
  entry.workloads.scope = entry.scope;
  entry.workloads.generators.resize(entry.inputs.size());
  if (generators != nullptr) {
    GeneratorReader(context, *generators, place.at("generators", generators->line)).run();
  }
  if (rows == nullptr || !rows->is_list() || rows->items.empty()) {
    if (entry.implemented || rows != nullptr) {
      context.report.add("S615", place.at("workloads", rows == nullptr ? 0 : rows->line),
                         "workloads is a list of rows");
    }
    return;
  }
  const Place at = place.at("workloads", rows->line);
  std::set<std::string> labels;
  for (const YamlNode& row : rows->items) {
    Place here = at;
    here.line = row.line;
    RowReader(context, row, here, labels).run();
  }
}

}  // namespace tileops::spec
