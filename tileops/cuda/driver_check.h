// SPDX-License-Identifier: Apache-2.0
// Turning driver results into errors. Private to the library's sources: it brings in fmt.
#pragma once

#include <string>
#include <string_view>

#include "tileops/core/check.h"
#include "tileops/cuda/driver.h"

namespace tileops::cuda {

/// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered); <remedy>".
std::string describe(abi::Result result);
/// What the user can do about an error.
std::string_view remedy(abi::Result result);
/// Whether the error comes from a call that a stream capture forbids.
bool is_capture_error(abi::Result result);
/// Whether the error ends the process's use of the device: every later call fails with it.
bool is_sticky(abi::Result result);
/// Raises "asked: description" with the kind that fits the error.
[[noreturn]] void raise_driver_error(abi::Result result, const std::string& asked);

}  // namespace tileops::cuda

/// Raises what was asked (formatted only then), the driver's error and the remedy.
#define TILEOPS_DRIVER_CHECK(expression, ...)                                         \
  do {                                                                                \
    const ::tileops::cuda::abi::Result driver_result = (expression);                  \
    if (driver_result != ::tileops::cuda::abi::Result::kSuccess) [[unlikely]] {       \
      ::tileops::cuda::raise_driver_error(driver_result, ::fmt::format(__VA_ARGS__)); \
    }                                                                                 \
  } while (false)
