// SPDX-License-Identifier: Apache-2.0
#include "tileops/op/op_class.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/ranges.h>

#include "tileops/core/check.h"
#include "tileops/op/op.h"
#include "tileops/spec/params.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"

namespace tileops {
namespace {

struct Classes {
  std::mutex mutex;  // guards the maps
  std::map<std::string, const OpClass*, std::less<>> by_name;
  std::map<std::pair<std::string, bool>, spec::ClassFacts> facts;  // by name and having an entry
};

Classes& classes() {
  static auto& instance = *new Classes;
  return instance;
}

/// The names of the parameters that a constructor takes, read off an instance made from a workload.
std::vector<std::string> constructor_params(const OpClass& op_class) {
  std::vector<std::string> names;
  try {
    const auto entry = op_class.entry();
    const auto cases = spec::workload_cases(*entry);
    if (cases.empty()) return names;
    const std::shared_ptr<Op> instance = op_class.make(cases.front().params);
    for (const auto& [name, value] : instance->given_params()) names.push_back(name);
  } catch (const Error&) {
    // A class that cannot be constructed has no parameters to compare; its own error says why.
  }
  return names;
}

spec::ClassFacts facts_of(const OpClass& op_class) {
  spec::ClassFacts facts;
  facts.name = op_class.name();
  for (const StageType& stage : op_class.delegate_types()) {
    facts.delegates.emplace_back(stage.stage, stage.op_class->name());
  }
  for (const auto& [key, interface] : op_class.kernel_types()) facts.kernel_keys.push_back(key);
  facts.params = constructor_params(op_class);
  facts.injected = op_class.injected();
  return facts;
}

const spec::ClassFacts* lookup_facts(std::string_view name) {
  const OpClass* op_class = find_op_class(name);
  if (op_class == nullptr) return nullptr;
  // Once found they stay as they are, so that a pointer to them stays good.
  const std::pair key(std::string(name), spec::find_entry(name) != nullptr);
  Classes& c = classes();
  {
    std::lock_guard lock(c.mutex);
    if (const auto it = c.facts.find(key); it != c.facts.end()) return &it->second;
  }
  spec::ClassFacts facts = facts_of(*op_class);
  std::lock_guard lock(c.mutex);
  return &c.facts.try_emplace(key, std::move(facts)).first->second;
}

}  // namespace

const OpClass& OpClass::declare(OpClassFacts facts) {
  if (const OpClass* known = find_op_class(facts.name)) {
    const std::type_info* type = known->facts_.type;
    TILEOPS_CHECK(ErrorKind::kValue,
                  type != nullptr && facts.type != nullptr && *type == *facts.type,
                  "{}: an op class of that name is declared already", facts.name);
    return *known;
  }
  std::vector<std::string> interfaces;
  for (const InterfaceType& interface : facts.interfaces) interfaces.push_back(interface.name);
  declare_kernel_table(facts.name, std::move(interfaces), facts.kernel_types);
  const auto* declared = new OpClass(std::move(facts));
  Classes& c = classes();
  std::lock_guard lock(c.mutex);
  c.by_name.emplace(declared->name(), declared);
  return *declared;
}

std::vector<std::pair<std::string, std::string>> OpClass::kernel_types() const {
  std::vector<std::pair<std::string, std::string>> result;
  for (const AnyImplementation& kernel : facts_.kernel_types) {
    result.emplace_back(kernel.info.key, kernel.interface);
  }
  return result;
}

size_t OpClass::stage_index(std::string_view stage) const {
  std::vector<std::string_view> declared;
  for (size_t i = 0; i < facts_.delegate_types.size(); ++i) {
    if (facts_.delegate_types[i].stage == stage) return i;
    declared.push_back(facts_.delegate_types[i].stage);
  }
  raise(ErrorKind::kDelegate, "{}: no stage {}; declared: {}", name(), stage,
        declared.empty() ? "none" : fmt::format("{}", fmt::join(declared, ", ")));
}

std::shared_ptr<const spec::Entry> OpClass::entry() const { return spec::entry(name()); }

std::shared_ptr<Op> OpClass::make(const Params& params, const OpOptions& options,
                                  const Injected& injected) const {
  TILEOPS_CHECK(ErrorKind::kState, facts_.make != nullptr,
                "{}: the class cannot be constructed by name", name());
  for (const auto& [given, instance] : injected.instances()) {
    const auto& declared = facts_.injected;
    TILEOPS_CHECK(ErrorKind::kType,
                  std::find(declared.begin(), declared.end(), given) != declared.end(),
                  "{}: no instance can be injected as {}; declared: {}", name(), given,
                  declared.empty() ? "none" : fmt::format("{}", fmt::join(declared, ", ")));
  }
  return facts_.make(spec::checked_params(*entry(), params), options, injected);
}

void Injected::set(std::string name, std::any instance) {
  instances_.emplace_back(std::move(name), std::move(instance));
}

const std::any* Injected::find(std::string_view name) const {
  for (const auto& [given, instance] : instances_) {
    if (given == name) return &instance;
  }
  return nullptr;
}

void Injected::raise_wrong_type(std::string_view name) {
  raise(ErrorKind::kType, "what is injected as {} is of another type than its name stands for",
        name);
}

const OpClass* find_op_class(std::string_view name) {
  Classes& c = classes();
  std::lock_guard lock(c.mutex);
  const auto it = c.by_name.find(name);
  return it == c.by_name.end() ? nullptr : it->second;
}

const OpClass& op_class(std::string_view name) {
  const OpClass* found = find_op_class(name);
  TILEOPS_CHECK(ErrorKind::kValue, found != nullptr, "no op is named {}; known: {}", name,
                fmt::join(op_class_names(), ", "));
  return *found;
}

std::vector<std::string> op_class_names() {
  Classes& c = classes();
  std::lock_guard lock(c.mutex);
  std::vector<std::string> names;
  for (const auto& [name, op_class] : c.by_name) names.push_back(name);
  return names;
}

void register_foreign_kernel_type(std::string_view op, std::string_view interface,
                                  ForeignImplementation implementation) {
  const std::vector<InterfaceType>& declared = op_class(op).interfaces();
  std::vector<std::string_view> names;
  names.reserve(declared.size());
  for (const InterfaceType& each : declared) names.push_back(each.name);
  TILEOPS_CHECK(ErrorKind::kValue, !declared.empty(),
                "{}: it has no kernel interface that {} could implement", op,
                implementation.info.key);
  TILEOPS_CHECK(ErrorKind::kValue, !interface.empty() || declared.size() == 1,
                "{}: name the interface that {} implements: {}", op, implementation.info.key,
                fmt::join(names, ", "));
  const auto wanted = std::find_if(
      declared.begin(), declared.end(),
      [&](const InterfaceType& each) { return interface.empty() || each.name == interface; });
  TILEOPS_CHECK(ErrorKind::kValue, wanted != declared.end(),
                "{}: {} implements {}, which the op does not declare; it declares {}", op,
                implementation.info.key, interface, fmt::join(names, ", "));
  TILEOPS_CHECK(ErrorKind::kValue, wanted->adapt != nullptr,
                "{}: the interface {} is C++'s alone: its call lists no fields", op, wanted->name);
  register_kernel_type(op, wanted->adapt(std::move(implementation)));
}

spec::ClassLookup class_lookup() { return lookup_facts; }

}  // namespace tileops
