// SPDX-License-Identifier: Apache-2.0
// The validator: everything that can be wrong with a spec file, said at once and in a fixed order.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/spec/class_facts.h"

namespace tileops::spec {

struct Diagnostic {
  std::string code;    // stable: "S101"; docs/spec.md lists them
  std::string source;  // file
  int line = 0;        // 1-based; 0 where the fault has no line
  std::string entry;   // "" for a fault of the file
  std::string field;   // "signature.inputs.b.shape"
  std::string message;
  auto operator<=>(const Diagnostic&) const = default;
};

/// "tileops/ops/…/x.yaml:12: S304 MoEGroupedGemmFwdOp.signature.inputs.b.shape: …".
std::string to_string(const Diagnostic& diagnostic);

struct SpecText {
  std::string source;
  std::string text;
};

/// Diagnostics of these texts taken together (each may use the sum types and entries of the others
/// and of what is loaded), sorted by source, line, code; never throws on malformed text.
std::vector<Diagnostic> validate(std::span<const SpecText> texts, const ClassLookup& classes);

}  // namespace tileops::spec
