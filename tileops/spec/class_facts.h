// SPDX-License-Identifier: Apache-2.0
// What the validator must know of an op's class, as plain words: the op layer fills it in, so that
// the spec layer depends on no op.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tileops::spec {

struct ClassFacts {
  std::string name;                                            // the entry's name
  std::vector<std::pair<std::string, std::string>> delegates;  // stage -> entry name, in order
  std::vector<std::string> kernel_keys;                        // kernel_types' keys, in order
  std::vector<std::string> params;    // constructor parameters that the spec declares, in order
  std::vector<std::string> injected;  // constructor parameters that take a sub-op or a service
};

/// The class of an entry's name, or null where no class of that name is linked in.
using ClassLookup = std::function<const ClassFacts*(std::string_view name)>;

}  // namespace tileops::spec
