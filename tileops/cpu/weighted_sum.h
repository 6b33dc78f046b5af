// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tileops/core/dtype.h"

namespace tileops::cpu {

/// out[0..size) = scale · Σ_i weights[i] · rows[i][0..size), i rising, in float32, one rounding.
/// Elements lie side by side; dtypes: kBF16, kF16 or kF32.
struct WeightedSum {
  std::span<const std::byte* const> rows;
  const float* weights = nullptr;  // one a row
  DType dtype = DType::kBF16;      // of the rows
  int64_t size = 0;
  float scale = 1;
  void* out = nullptr;
  DType out_dtype = DType::kBF16;
};

/// On the calling thread, by the kernels of active_isa(). Errors: active_isa()'s.
void weighted_sum(const WeightedSum& sum);

}  // namespace tileops::cpu
