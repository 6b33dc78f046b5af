// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/stage_range.h"

#include <dlfcn.h>

#include <array>

namespace tileops::cuda {
namespace {

constinit thread_local const StageRange* innermost = nullptr;

/// NVTX's functions where a profiler's or the toolkit's library is there; null elsewhere.
struct Nvtx {
  int (*push)(const char* text) = nullptr;
  int (*pop)() = nullptr;
};

Nvtx load_nvtx() {
  constexpr std::array kLibraries = {"libnvtx3interop.so.1", "libnvToolsExt.so.1"};
  for (const char* name : kLibraries) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    const Nvtx nvtx{reinterpret_cast<decltype(Nvtx::push)>(dlsym(library, "nvtxRangePushA")),
                    reinterpret_cast<decltype(Nvtx::pop)>(dlsym(library, "nvtxRangePop"))};
    if (nvtx.push != nullptr && nvtx.pop != nullptr) return nvtx;
  }
  return {};
}

const Nvtx& nvtx() {
  static const Nvtx functions = load_nvtx();
  return functions;
}

}  // namespace

StageRange::StageRange(const char* name) : name_(name), outer_(innermost) {
  innermost = this;
  if (nvtx().push != nullptr) nvtx().push(name);
}

StageRange::~StageRange() {
  innermost = outer_;
  if (nvtx().pop != nullptr) nvtx().pop();
}

std::string stage_path() {
  std::string path;
  for (const StageRange* range = innermost; range != nullptr; range = range->outer_) {
    path = path.empty() ? range->name_ : std::string(range->name_) + " > " + path;
  }
  return path;
}

}  // namespace tileops::cuda
