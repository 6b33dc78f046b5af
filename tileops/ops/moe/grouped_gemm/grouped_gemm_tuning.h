// SPDX-License-Identifier: Apache-2.0
// What the grouped GEMM's implementations are tuned on. Private to the op's sources.
#pragma once

#include <array>
#include <string>

#include "tileops/ops/moe/grouped_gemm/grouped_gemm_kernel.h"
#include "tileops/ops/moe/tuning_inputs.h"

namespace tileops::grouped_gemm {

/// Calls that share a configuration: all but the row count exactly, that by rows_bucket().
std::string tuning_bucket(const Call& call);

/// Contiguous tensors of a call's sizes, and metadata of each routing.
struct TuningTensors {
  Tensor a, b, bias, out;
  std::array<Tensor, kTuningRoutings.size()> metadata;
  Args args(size_t scenario) const { return {a, b, metadata[scenario], bias, out}; }
};
/// Errors: kOutOfMemory: a copy of the weights is needed.
TuningTensors make_tuning_tensors(const Call& call);
/// The call that stands for it on a CPU: fewer experts, as many rows of each.
Call cpu_tuning_call(Call call);

}  // namespace tileops::grouped_gemm
