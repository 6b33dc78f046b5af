// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/call_path.h"

#include <atomic>

namespace tileops {
namespace {

constinit std::atomic<std::string (*)()> path_source = nullptr;
constinit std::atomic<const CallMarker*> marker_in_use = nullptr;

}  // namespace

std::string call_path() {
  const auto source = path_source.load(std::memory_order_acquire);
  return source == nullptr ? std::string() : source();
}

void set_call_path_source(std::string (*source)()) {
  path_source.store(source, std::memory_order_release);
}

const CallMarker* call_marker() { return marker_in_use.load(std::memory_order_acquire); }

void set_call_marker(const CallMarker* marker) {
  marker_in_use.store(marker, std::memory_order_release);
}

}  // namespace tileops
