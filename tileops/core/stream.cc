// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/stream.h"

namespace tileops {
namespace {

constinit thread_local const StreamGuard* innermost_guard = nullptr;

}  // namespace

Stream current_stream(Device device) {
  for (const StreamGuard* guard = innermost_guard; guard != nullptr; guard = guard->outer_) {
    if (guard->stream_.device == device) return guard->stream_;
  }
  return {device, nullptr};
}

StreamGuard::StreamGuard(Stream stream) : stream_(stream), outer_(innermost_guard) {
  innermost_guard = this;
}

StreamGuard::~StreamGuard() { innermost_guard = outer_; }

}  // namespace tileops
