// SPDX-License-Identifier: Apache-2.0
// Loaded machine code and its kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tileops/core/device.h"
#include "tileops/cuda/driver_abi.h"
#include "tileops/cuda/program.h"

namespace tileops::cuda {

/// A kernel of a loaded module; valid while the module is.
struct Function {
  abi::Function handle = nullptr;
  Device device{DeviceType::kCUDA, 0};
  std::string name;           // of its program, for messages
  int32_t num_registers = 0;  // a thread
  int32_t max_threads = 0;    // a CTA
  int64_t static_smem_bytes = 0;
  int64_t local_bytes = 0;             // a thread: spills and run-time indexed arrays
  int64_t max_dynamic_smem_bytes = 0;  // what a launch may ask for
};

/// Owns one module in a device's primary context. Move-only.
class Module {
 public:
  /// Loads a binary and finds its kernels, each allowed all the dynamic shared memory there is.
  /// Errors: kDevice, kBuild (the device cannot run it), kOutOfMemory.
  Module(const std::string& name, const Binary& binary, Device device);
  Module(Module&& other) noexcept;
  Module& operator=(Module&& other) noexcept;
  ~Module();

  /// The binary's kernels, in its order.
  std::span<const Function> functions() const { return functions_; }

 private:
  Device device_;
  abi::Module handle_ = nullptr;
  std::vector<Function> functions_;
};

}  // namespace tileops::cuda
