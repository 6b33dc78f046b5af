// SPDX-License-Identifier: Apache-2.0
// Readers of the parts of an entry; each reports what it cannot read and leaves the rest usable.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/spec/entry_impl.h"

namespace tileops::spec {

/// The state of reading one entry.
struct EntryContext {
  EntryImpl& entry;
  const TypeTable& types;
  Report& report;
};

/// Reports keys that are not in `allowed` (S106); false where the node is no mapping (S105).
bool check_keys(const YamlNode& node, std::initializer_list<std::string_view> allowed,
                const Place& place, Report& report);
/// A scalar's text; none, and S105, for anything else.
std::optional<std::string> read_text(const YamlNode& node, const Place& place, Report& report);
/// true or false; `otherwise`, and S111, for anything else.
bool read_flag(const YamlNode* node, const Place& place, Report& report, bool otherwise = false);
/// Parses and kind-checks; faults go to the report with the expression's text.
std::optional<Formula> read_formula(const YamlNode& node, const Scope& scope,
                                    const Narrowing& known, const Place& place, Report& report);
/// The same, and S407 where it is no predicate.
std::optional<Formula> read_predicate(const YamlNode& node, const Scope& scope,
                                      const Narrowing& known, const Place& place, Report& report);

/// Walks a family {by, cases} down to its leaves, checking that cases are exhaustive and known.
using LeafReader = std::function<void(const YamlNode& leaf, const std::vector<Condition>& when,
                                      const Narrowing& known, const Place& place)>;
void walk_family(EntryContext& context, const YamlNode& node, const Place& place,
                 const LeafReader& leaf);

void read_params(EntryContext& context, const YamlNode& node, const Place& place);
void read_indices(EntryContext& context, const YamlNode& forall, const Place& place);
void read_lets(EntryContext& context, const YamlNode& node, const Place& place);
/// The names of a section's tensors, before anything that may mention them is read.
void declare_tensors(EntryContext& context, const YamlNode& node, const Place& place,
                     std::vector<TensorDecl>& decls, ExprOp op, int32_t base);
void read_tensors(EntryContext& context, const YamlNode& node, const Place& place,
                  std::vector<TensorDecl>& decls, std::vector<TensorSpec>& specs, bool output);
void read_composition(EntryContext& context, const YamlNode& node, const Place& place);
void read_workloads(EntryContext& context, const YamlNode* generators, const YamlNode* rows,
                    const Place& place);
/// Faults that only the whole entry shows: groups, effects, plans of every case.
void check_entry(EntryContext& context);

}  // namespace tileops::spec
