// SPDX-License-Identifier: Apache-2.0
// The tuning configuration that the CPU's GEMM kernels of the family share.
#pragma once

#include "tileops/core/value.h"
#include "tileops/cpu/grouped_gemm.h"

namespace tileops {

/// Options from a forced configuration {inner_loop: auto | fma | bf16_dot | amx}; empty: auto.
/// Errors: kValue for another key or value.
cpu::GemmOptions cpu_gemm_options(const Params& kernel_config, bool batch_invariant);
/// The configuration in use, as cpu_gemm_options takes it.
Params cpu_gemm_config(const cpu::GemmOptions& options);

}  // namespace tileops
