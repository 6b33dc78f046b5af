// SPDX-License-Identifier: Apache-2.0
// From a call's tensors to the launch of the sm_90a grouped GEMM. Private to the op's sources.
#pragma once

#include "tileops/cuda/kernel_cache.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_kernel.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_config.h"

namespace tileops::grouped_gemm {

/// What is the same for every call of a kernel.
struct Sm90Launch {
  Sm90Config config;
  MGroupedLayout layout = MGroupedLayout::contiguous();
  GatedActivation activation;
  bool batch_invariant = false;  // no sum is split: how it is split depends on all rows
  int64_t up_distance = 0;       // rows of b from gate to up, stacked; 0: all features

  /// `args.layout_metadata` absent: all rows are of the one expert that b has.
  /// Puts a call whose output has elements on the current stream of its device. Where the launch
  /// right before it, in the same request or capture, computes `a`, this one begins while that one
  /// ends, with the rows that are written.
  /// Errors: kBuild, kDevice, kOutOfMemory, kInternal (the driver's).
  void run(const Args& args, cuda::LazyProgram& program) const;
};

/// The program of a configuration.
cuda::ProgramSpec program_of(const Sm90Config& config);

/// Everything of a launch but its workspace and the metadata of a per_row layout.
GroupedGemmSm90Params sm90_params(const Sm90Launch& launch, const Args& args);

}  // namespace tileops::grouped_gemm
