// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/program.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "tileops/core/hash.h"

namespace tileops::cuda {
namespace {

struct Registry {
  std::mutex mutex;  // guards the map
  std::map<std::string, ProgramLister> listers;
};

Registry& registry() {
  static auto& instance = *new Registry;
  return instance;
}

}  // namespace

size_t ProgramSpecHash::operator()(const ProgramSpec& spec) const {
  size_t seed = hash_of(spec.name, spec.source, spec.uses_wgmma);
  for (const std::string& kernel : spec.kernels) seed = hash_mix(seed, hash_of(kernel));
  for (const std::string& option : spec.options) seed = hash_mix(seed, hash_of(option));
  return seed;
}

void register_programs(std::string implementation, ProgramLister lister) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.listers.insert_or_assign(std::move(implementation), std::move(lister));
}

std::vector<ProgramSpec> registered_programs() {
  std::map<std::string, ProgramLister> listers;
  {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    listers = r.listers;
  }
  std::vector<ProgramSpec> programs;
  for (const auto& [implementation, lister] : listers) {
    for (ProgramSpec& spec : lister()) {
      const bool known = std::find(programs.begin(), programs.end(), spec) != programs.end();
      if (!known) programs.push_back(std::move(spec));
    }
  }
  return programs;
}

}  // namespace tileops::cuda
