// SPDX-License-Identifier: Apache-2.0
// Effect branches: what a call writes and leaves out, each with its own operator in traced graphs.
#pragma once

#include <string>
#include <vector>

#include "tileops/spec/entry.h"

namespace tileops::spec {

struct EffectBranch {
  std::string name;          // "", "out", "mutated", "no_sums", "out_mutated_no_sums", …
  std::vector<int> outs;     // outputs whose buffer is given
  std::vector<int> mutated;  // inputs that are written
  std::vector<int> omitted;  // outputs that are left out
};

/// All branches of an entry, the plain one first. Errors: kSpec (too many effects).
std::vector<EffectBranch> effect_branches(const Entry& entry);

/// Whether a call can be of the branch: none gives a buffer for what it leaves out.
bool is_possible(const EffectBranch& branch);

/// The outputs that a call of the branch makes: neither given, nor left out, nor an input itself.
std::vector<int> fresh_outputs(const Entry& entry, const EffectBranch& branch);

}  // namespace tileops::spec
