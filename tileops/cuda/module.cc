// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/module.h"

#include <algorithm>
#include <utility>

#include "tileops/core/log.h"
#include "tileops/cuda/capture.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/driver_check.h"

namespace tileops::cuda {
namespace {

int attribute_of(const Function& function, abi::FunctionAttribute attribute) {
  int value = 0;
  TILEOPS_DRIVER_CHECK(driver().func_get_attribute(&value, attribute, function.handle),
                       "{}: reading attribute {} of the kernel", function.name,
                       static_cast<int>(attribute));
  return value;
}

Function find_function(abi::Module module, const std::string& name, const std::string& symbol,
                       Device device) {
  Function function{.device = device, .name = name};
  TILEOPS_DRIVER_CHECK(driver().module_get_function(&function.handle, module, symbol.c_str()),
                       "{}: finding kernel {} on {}", name, symbol, to_string(device));
  function.num_registers = attribute_of(function, abi::FunctionAttribute::kNumRegisters);
  function.max_threads = attribute_of(function, abi::FunctionAttribute::kMaxThreads);
  function.static_smem_bytes = attribute_of(function, abi::FunctionAttribute::kSharedBytes);
  function.local_bytes = attribute_of(function, abi::FunctionAttribute::kLocalBytes);
  const int64_t limit = device_attribute(device, abi::DeviceAttribute::kMaxSharedMemoryOptIn);
  function.max_dynamic_smem_bytes = std::max<int64_t>(limit - function.static_smem_bytes, 0);
  TILEOPS_DRIVER_CHECK(
      driver().func_set_attribute(function.handle, abi::FunctionAttribute::kMaxDynamicSharedBytes,
                                  static_cast<int>(function.max_dynamic_smem_bytes)),
      "{}: allowing {} bytes of shared memory on {}", name, function.max_dynamic_smem_bytes,
      to_string(device));
  return function;
}

}  // namespace

Module::Module(const std::string& name, const Binary& binary, Device device) : device_(device) {
  const ContextGuard context(device);
  const RelaxedCapture relaxed;
  TILEOPS_DRIVER_CHECK(driver().module_load_data(&handle_, binary.cubin.data()),
                       "{}: loading {} bytes of machine code on {}", name, binary.cubin.size(),
                       to_string(device));
  try {
    for (const std::string& symbol : binary.symbols) {
      functions_.push_back(find_function(handle_, name, symbol, device));
    }
  } catch (...) {
    driver().module_unload(handle_);
    throw;
  }
}

Module::Module(Module&& other) noexcept
    : device_(other.device_),
      handle_(std::exchange(other.handle_, nullptr)),
      functions_(std::move(other.functions_)) {}

Module& Module::operator=(Module&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(functions_, other.functions_);
  return *this;
}

Module::~Module() {
  if (handle_ == nullptr) return;
  try {
    const ContextGuard context(device_);
    TILEOPS_DRIVER_CHECK(driver().module_unload(handle_), "unloading machine code");
  } catch (const std::exception& error) {
    if (log_on(Log::kExec)) log_line(Log::kExec, error.what());
  }
}

}  // namespace tileops::cuda
