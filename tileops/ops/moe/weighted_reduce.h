// SPDX-License-Identifier: Apache-2.0
// The combination of the experts' outputs on the CPU.
#pragma once

#include <cstdint>

#include "tileops/core/tensor.h"
#include "tileops/ops/moe/layout.h"

namespace tileops {

/// out[t] = scale · Σ_k topk_weights[t, k] · rows[row_of_route[t·K + k]]: k rises, float32, one
/// rounding. A route whose row lies outside `matrix` adds nothing.
/// Shapes: topk_weights float32 [T, K], row_of_route int32 [T·K], out [T, H]; any strides; rows and
///         out: float16, bfloat16 or float32.
void weighted_reduce(const Tensor& rows, const RowMatrix& matrix, const Tensor& topk_weights,
                     const Tensor& row_of_route, float scale, const Tensor& out);

}  // namespace tileops
