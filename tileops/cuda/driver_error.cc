// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/driver_check.h"

namespace tileops::cuda {
namespace {

ErrorKind kind_of(abi::Result result) {
  switch (result) {
    case abi::Result::kOutOfMemory:
      return ErrorKind::kOutOfMemory;
    case abi::Result::kNotInitialized:
    case abi::Result::kStubLibrary:
    case abi::Result::kNoDevice:
    case abi::Result::kInvalidDevice:
    case abi::Result::kSystemDriverMismatch:
    case abi::Result::kCompatNotSupported:
      return ErrorKind::kDevice;
    case abi::Result::kInvalidImage:
    case abi::Result::kNoBinaryForGpu:
    case abi::Result::kUnsupportedPtxVersion:
      return ErrorKind::kBuild;
    default:
      return is_capture_error(result) ? ErrorKind::kState : ErrorKind::kInternal;
  }
}

}  // namespace

bool is_sticky(abi::Result result) {
  switch (result) {
    case abi::Result::kIllegalAddress:
    case abi::Result::kLaunchTimeout:
    case abi::Result::kAssert:
    case abi::Result::kHardwareStackError:
    case abi::Result::kIllegalInstruction:
    case abi::Result::kMisalignedAddress:
    case abi::Result::kInvalidAddressSpace:
    case abi::Result::kInvalidPc:
    case abi::Result::kLaunchFailed:
      return true;
    default:
      return false;
  }
}

bool is_capture_error(abi::Result result) {
  return result >= abi::Result::kStreamCaptureUnsupported &&
         result <= abi::Result::kStreamCaptureWrongThread;
}

std::string_view remedy(abi::Result result) {
  if (is_sticky(result)) {
    return "a kernel faulted, and the process can no longer use the device: run it again with "
           "TILEOPS_SYNC=1, which names the op and stage";
  }
  if (is_capture_error(result)) {
    return "a capture allows no such call: make one warm call before capturing";
  }
  switch (result) {
    case abi::Result::kOutOfMemory:
      return "free tensors, or use a smaller call";
    case abi::Result::kNotInitialized:
      return "CUDA does not survive a fork: start worker processes by spawn";
    case abi::Result::kDeinitialized:
      return "the process is ending";
    case abi::Result::kStubLibrary:
      return "a stub libcuda.so.1 was loaded: put the driver's own first in the library path";
    case abi::Result::kNoDevice:
      return "see nvidia-smi and CUDA_VISIBLE_DEVICES";
    case abi::Result::kInvalidDevice:
      return "see nvidia-smi for the devices that there are";
    case abi::Result::kInvalidImage:
    case abi::Result::kNoBinaryForGpu:
    case abi::Result::kUnsupportedPtxVersion:
      return "NVRTC may be newer than the driver: name another with TILEOPS_NVRTC";
    case abi::Result::kSystemDriverMismatch:
    case abi::Result::kCompatNotSupported:
      return "libcuda.so.1 and the kernel's driver differ: reinstall the driver, or reboot";
    case abi::Result::kLaunchOutOfResources:
      return "the kernel needs more registers or shared memory than the device has";
    case abi::Result::kInvalidClusterSize:
      return "the cluster is larger than the device allows";
    default:
      return "see the CUDA driver's documentation of this error";
  }
}

std::string describe(abi::Result result) {
  const DriverTable& table = driver();
  const char* name = nullptr;
  const char* text = nullptr;
  table.get_error_name(result, &name);
  table.get_error_string(result, &text);
  return fmt::format("{} ({}); {}", name == nullptr ? "an unknown error" : name,
                     text == nullptr ? fmt::to_string(static_cast<int>(result)) : text,
                     remedy(result));
}

void raise_driver_error(abi::Result result, const std::string& asked) {
  raise(kind_of(result), "{}: {}", asked, describe(result));
}

}  // namespace tileops::cuda
