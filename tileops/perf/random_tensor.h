// SPDX-License-Identifier: Apache-2.0
// Large tensors of random values for measurements, made quickly.
#pragma once

#include <cstdint>

#include "tileops/core/tensor.h"

namespace tileops::perf {

/// Floating-point values uniform in ±scale; up to a million are drawn and fill the tensor in turn,
/// which no kernel's time depends on. Never zeros: products of zeros take less power, and time.
/// Errors: kOutOfMemory; kDType for no floating-point type of 2 or 4 bytes.
Tensor random_tensor(const Shape& shape, DType dtype, Device device, uint64_t seed,
                     float scale = 1.0F);

}  // namespace tileops::perf
