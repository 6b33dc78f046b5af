// SPDX-License-Identifier: Apache-2.0
// What the compiler made of a program, and whether it may ship; needs NVRTC and no GPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/embedded.h"
#include "tileops/cuda/program.h"

namespace tileops::cuda {

/// Resources of one compiled kernel, from ptxas' own report.
struct KernelResources {
  std::string symbol;
  int32_t num_registers = 0;  // a thread
  int32_t num_barriers = 0;
  int64_t static_smem_bytes = 0;
  int64_t stack_bytes = 0;  // local memory a thread: arrays indexed at run time, spills
  int64_t spill_store_bytes = 0;
  int64_t spill_load_bytes = 0;
  int64_t num_wgmma = 0;  // wgmma.mma_async instructions in its PTX
  bool operator==(const KernelResources&) const = default;
};

struct BuildReport {
  std::vector<KernelResources> kernels;  // of the spec, in its order
  std::vector<std::string> faults;       // each one line; empty: the build may ship
};

/// The resources in a log of `ptxas -v`, in its order.
std::vector<KernelResources> parse_ptxas_log(std::string_view log);
/// wgmma.mma_async instructions in a kernel's part of the PTX.
int64_t count_wgmma(std::string_view ptx, std::string_view symbol);

/// Compiles a program and judges it: a fault is a spill, local memory, serialised wgmma, an ignored
/// setmaxnreg, or a matrix program (uses_wgmma) with a kernel list in which none uses wgmma.
/// Errors: kBuild (NVRTC's log).
BuildReport report_build(const ProgramSpec& spec, std::span<const EmbeddedFile> headers,
                         std::string_view arch = "sm_90a");

/// "grouped_gemm sm90_tma: 168 registers, 0 + 230400 bytes of smem, …" (static + dynamic) a line
/// per kernel, then faults.
std::string to_string(const ProgramSpec& spec, const BuildReport& report);

}  // namespace tileops::cuda
