// SPDX-License-Identifier: Apache-2.0
// What a stream capture changes for host code. Private to the library's sources.
#pragma once

#include "tileops/cuda/driver.h"

namespace tileops::cuda {

/// Lets this thread make calls that a capture elsewhere in the process would otherwise forbid.
class RelaxedCapture {
 public:
  RelaxedCapture() { driver().thread_exchange_stream_capture_mode(&mode_); }
  ~RelaxedCapture() { driver().thread_exchange_stream_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  abi::CaptureMode mode_ = abi::CaptureMode::kRelaxed;
};

}  // namespace tileops::cuda
