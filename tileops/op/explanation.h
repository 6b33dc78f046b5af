// SPDX-License-Identifier: Apache-2.0
// Which kernel serves, or would serve, each stage of a call, and why not the others.
#pragma once

#include <string>
#include <vector>

#include "tileops/dispatch/selection.h"

namespace tileops {

struct InterfaceChoice {
  std::string interface;
  std::vector<Candidate> candidates;  // at most one chosen
};

struct Explanation {
  std::string op;
  std::string stage;                     // "" for the op that was asked
  std::string target;                    // what serves: "builtin" or a registered target
  std::vector<InterfaceChoice> choices;  // of the op's own kernels
  std::vector<Explanation> stages;       // of the sub-op calls, in call order

  /// Indented lines for a person.
  std::string text() const;
};

}  // namespace tileops
