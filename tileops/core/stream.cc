// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/stream.h"

namespace tileops {
namespace {

constinit thread_local const StreamGuard* innermost_stream = nullptr;

}  // namespace

Stream current_stream(Device device) {
  for (const StreamGuard* guard = innermost_stream; guard != nullptr; guard = guard->outer_) {
    if (guard->stream_.device == device) return guard->stream_;
  }
  return {device, nullptr};
}

StreamGuard::StreamGuard(Stream stream) : stream_(stream), outer_(innermost_stream) {
  innermost_stream = this;
}

StreamGuard::~StreamGuard() { innermost_stream = outer_; }

}  // namespace tileops
