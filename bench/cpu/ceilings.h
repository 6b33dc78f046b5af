// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tileops::bench {

/// What this machine's cores do at most, all threads at once, each the best of several short runs.
struct Ceilings {
  double read_gbps = 0;        // sequential reads of memory much larger than the caches
  double fma_gflops = 0;       // float32 multiply-adds in registers
  double bf16_dot_gflops = 0;  // vdpbf16ps in registers; 0 where there is none
  double amx_gflops = 0;       // tdpbf16ps in tiles; 0 where there is none
};

/// Takes about two seconds and 1 GiB.
Ceilings measure_ceilings();

}  // namespace tileops::bench
