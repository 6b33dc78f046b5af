// SPDX-License-Identifier: Apache-2.0
// Entries and types as JSON, for what is generated from them: bindings, stubs, tables.
#pragma once

#include <string>

#include "tileops/spec/entry.h"

namespace tileops::spec {

/// The whole entry, workloads and formulas of the price aside: name, family, namespace, params,
/// indices, inputs, outputs with their shapes and dtypes by case, discriminants, lets, rules, stages.
/// Expressions stand as the spec writes them; `when` lists (discriminant, label).
std::string entry_json(const Entry& entry);

/// The named types that are loaded: enums and sum types with their constructors.
std::string types_json();

}  // namespace tileops::spec
