// SPDX-License-Identifier: Apache-2.0
// For tests of signatures: tensors and layouts in a word, and an error's text beside its kind.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tileops/core/error.h"
#include "tileops/core/tensor.h"
#include "tileops/core/value.h"

namespace tileops::spec {

/// The text of the error of this kind that `call` throws; "no error" where it returns.
template <class Call>
std::string message_of(Call&& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error_kind_name(error.kind()), error_kind_name(kind)) << error.what();
    return error.what();
  }
  return "no error";
}

inline Tensor tensor(const Shape& shape, DType dtype = DType::kBF16, Device device = kCpuDevice) {
  return Tensor::empty(shape, dtype, device);
}

/// The layout of expert groups of at most max_m rows each.
inline SumValue masked(int64_t max_m) { return {"MGroupedLayout", "masked", {{"max_m", max_m}}}; }

}  // namespace tileops::spec
