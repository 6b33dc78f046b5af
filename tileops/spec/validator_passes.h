// SPDX-License-Identifier: Apache-2.0
// The validator's passes over an entry that has been read.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "tileops/spec/class_facts.h"
#include "tileops/spec/entry_impl.h"
#include "tileops/spec/report.h"

namespace tileops::spec {

/// An entry of the texts at hand or of the registry, or null.
using EntryLookup = std::function<std::shared_ptr<const EntryImpl>(std::string_view name)>;

/// Stages name known entries, in no circle, and formulas name stages.
void check_composition(const EntryImpl& entry, const EntryLookup& lookup, Report& report);
/// The class agrees with composition and parameters (A2, A3).
void check_class(const EntryImpl& entry, const ClassLookup& classes, Report& report);
/// Every row instantiates, passes its own check, infers back to itself and can be priced; every
/// `requires` holds of generated data. The signature is clean.
void check_workloads(const std::shared_ptr<const EntryImpl>& entry, Report& report);

}  // namespace tileops::spec
