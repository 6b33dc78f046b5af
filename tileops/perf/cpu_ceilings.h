// SPDX-License-Identifier: Apache-2.0
// What the cores of this machine do at most, measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tileops::perf {

/// All threads at once, each the best of several short runs. A rate is 0 where the processor lacks
/// the instruction.
struct CpuCeilings {
  double read_gbps = 0;         // sequential reads of memory much larger than the caches
  double cache_gbps = 0;        // reads of what fits in the second-level caches
  double first_level_gbps = 0;  // reads of what fits in the first-level caches
  int64_t cache_bytes = 0;      // the threads' second-level caches together
  double fma_gflops = 0;        // float32 multiply-adds in registers
  double bf16_dot_gflops = 0;   // vdpbf16ps in registers
  double amx_gflops = 0;        // tdpbf16ps in tiles
  bool quiet = false;           // whether the cores were ours alone while memory was read
};

/// Takes about a second, and up to 512 MiB of memory (a quarter of the machine's at most).
CpuCeilings measure_cpu_ceilings();

/// Reads all of data once, on this thread, with the loop that read_gbps is measured by.
/// Size: a multiple of 512 bytes, 64-byte aligned.
void read_memory(std::span<const std::byte> data);

}  // namespace tileops::perf
