// SPDX-License-Identifier: Apache-2.0
// For tests: an NVRTC of ordinary functions, for machines without it.
#pragma once

#include <atomic>
#include <functional>

namespace tileops::cuda {

/// Machine code is "code of <name> for <arch>" here; a source with #error does not compile.
class FakeNvrtc {
 public:
  FakeNvrtc();
  ~FakeNvrtc();
  FakeNvrtc(const FakeNvrtc&) = delete;
  FakeNvrtc& operator=(const FakeNvrtc&) = delete;

  std::atomic<int> num_compiled = 0;
  std::function<void()> while_compiling;  // called in each build
  int minor_version = 0;
};

}  // namespace tileops::cuda
