// SPDX-License-Identifier: Apache-2.0
// Named stages of this thread: what launch errors name, and NVTX ranges for profilers.
#pragma once

#include <string>

namespace tileops::cuda {

/// Names what this thread does until destroyed; ranges nest. The text must outlive the range.
class StageRange {
 public:
  explicit StageRange(const char* name);
  ~StageRange();
  StageRange(const StageRange&) = delete;
  StageRange& operator=(const StageRange&) = delete;

 private:
  const char* name_;
  const StageRange* outer_;
  friend std::string stage_path();
};

/// "fused_moe > experts > gate_up": this thread's open ranges, outermost first; empty without any.
std::string stage_path();

}  // namespace tileops::cuda
