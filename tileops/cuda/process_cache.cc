// SPDX-License-Identifier: Apache-2.0
// Apart from the rest of kernel_cache.h, because it needs the embedded device files.
#include "tileops/core/cache_folder.h"
#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"

namespace tileops::cuda {

KernelCache& kernel_cache() {
  static auto& cache = *[] {
    const std::string folder = cache_folder();
    return new KernelCache(
        {.headers = embedded::device_files(), .folder = folder.empty() ? "" : folder + "/kernels"});
  }();
  return cache;
}

const Function& LazyProgram::function(Stream stream, size_t index) {
  TILEOPS_CHECK(ErrorKind::kDevice,
                stream.device.type == DeviceType::kCUDA && stream.device.index >= 0 &&
                    stream.device.index < kMaxDevices,
                "{}: {} is not a CUDA device that is seen", spec_.name, to_string(stream.device));
  std::atomic<const Module*>& slot = modules_[stream.device.index];
  const Module* module = slot.load(std::memory_order_acquire);
  if (module == nullptr) {
    module = &kernel_cache().get(spec_, stream);
    slot.store(module, std::memory_order_release);
  }
  return module->functions()[index];
}

}  // namespace tileops::cuda
