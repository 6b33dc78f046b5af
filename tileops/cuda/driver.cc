// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/driver.h"

#include <dlfcn.h>

#include <atomic>

#include "tileops/cuda/driver_check.h"

namespace tileops::cuda {
namespace {

constexpr int kMinDriverVersion = 12000;  // launch attributes and tensor maps as used here
constexpr const char* kLibrary = "libcuda.so.1";

using GetProcAddress = abi::Result (*)(const char* symbol, void** function, int version,
                                       uint64_t flags, int* status);

/// Fills the slots of a table; remembers the first symbol that the driver lacks.
class Loader {
 public:
  explicit Loader(GetProcAddress get) : get_(get) {}

  template <class F>
  void load(F*& slot, const char* symbol, int version) {
    void* function = nullptr;
    int status = 0;
    const abi::Result result = get_(symbol, &function, version, 0, &status);
    if (result != abi::Result::kSuccess || function == nullptr) {
      if (missing_ == nullptr) missing_ = symbol;
      return;
    }
    slot = reinterpret_cast<F*>(function);
  }
  const char* missing() const { return missing_; }

 private:
  GetProcAddress get_;
  const char* missing_ = nullptr;
};

/// The numbers are the versions of CUDA whose form of the function the table declares.
void load_devices_and_modules(Loader& loader, DriverTable& t) {
  loader.load(t.init, "cuInit", 2000);
  loader.load(t.driver_get_version, "cuDriverGetVersion", 2020);
  loader.load(t.get_error_name, "cuGetErrorName", 6000);
  loader.load(t.get_error_string, "cuGetErrorString", 6000);
  loader.load(t.device_get_count, "cuDeviceGetCount", 2000);
  loader.load(t.device_get, "cuDeviceGet", 2000);
  loader.load(t.device_get_name, "cuDeviceGetName", 2000);
  loader.load(t.device_get_attribute, "cuDeviceGetAttribute", 2000);
  loader.load(t.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain", 7000);
  loader.load(t.ctx_get_current, "cuCtxGetCurrent", 4000);
  loader.load(t.ctx_set_current, "cuCtxSetCurrent", 4000);
  loader.load(t.ctx_get_device, "cuCtxGetDevice", 2000);
  loader.load(t.module_load_data, "cuModuleLoadData", 2000);
  loader.load(t.module_unload, "cuModuleUnload", 2000);
  loader.load(t.module_get_function, "cuModuleGetFunction", 2000);
  loader.load(t.func_set_attribute, "cuFuncSetAttribute", 9000);
  loader.load(t.func_get_attribute, "cuFuncGetAttribute", 2020);
  loader.load(t.occupancy_max_active_clusters, "cuOccupancyMaxActiveClusters", 11070);
  loader.load(t.launch_kernel_ex, "cuLaunchKernelEx", 11060);
  loader.load(t.tensor_map_encode_tiled, "cuTensorMapEncodeTiled", 12000);
}

void load_memory_and_streams(Loader& loader, DriverTable& t) {
  loader.load(t.mem_pool_create, "cuMemPoolCreate", 11020);
  loader.load(t.mem_pool_set_attribute, "cuMemPoolSetAttribute", 11020);
  loader.load(t.mem_pool_trim_to, "cuMemPoolTrimTo", 11020);
  loader.load(t.mem_alloc_from_pool_async, "cuMemAllocFromPoolAsync", 11020);
  loader.load(t.mem_free_async, "cuMemFreeAsync", 11020);
  loader.load(t.mem_get_info, "cuMemGetInfo", 3020);
  loader.load(t.memcpy_htod_async, "cuMemcpyHtoDAsync", 3020);
  loader.load(t.memcpy_dtoh_async, "cuMemcpyDtoHAsync", 3020);
  loader.load(t.memset_d8_async, "cuMemsetD8Async", 3020);
  loader.load(t.stream_create, "cuStreamCreate", 2000);
  loader.load(t.stream_destroy, "cuStreamDestroy", 4000);
  loader.load(t.stream_synchronize, "cuStreamSynchronize", 2000);
  loader.load(t.stream_is_capturing, "cuStreamIsCapturing", 10000);
  loader.load(t.stream_get_capture_info, "cuStreamGetCaptureInfo", 11030);
  loader.load(t.stream_begin_capture, "cuStreamBeginCapture", 10010);
  loader.load(t.stream_end_capture, "cuStreamEndCapture", 10000);
  loader.load(t.stream_wait_event, "cuStreamWaitEvent", 3020);
  loader.load(t.thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode", 10010);
  loader.load(t.graph_instantiate_with_flags, "cuGraphInstantiateWithFlags", 11040);
  loader.load(t.graph_exec_kernel_node_set_params, "cuGraphExecKernelNodeSetParams", 12000);
  loader.load(t.graph_launch, "cuGraphLaunch", 10000);
  loader.load(t.graph_exec_destroy, "cuGraphExecDestroy", 10000);
  loader.load(t.graph_destroy, "cuGraphDestroy", 10000);
  loader.load(t.user_object_create, "cuUserObjectCreate", 11030);
  loader.load(t.graph_retain_user_object, "cuGraphRetainUserObject", 11030);
  loader.load(t.event_create, "cuEventCreate", 2000);
  loader.load(t.event_destroy, "cuEventDestroy", 4000);
  loader.load(t.event_record, "cuEventRecord", 2000);
  loader.load(t.event_synchronize, "cuEventSynchronize", 2000);
  loader.load(t.event_elapsed_time, "cuEventElapsedTime", 2000);
}

struct Loaded {
  DriverTable table{};
  std::string failure;  // empty: the table is whole and the driver initialised
};

/// Why the driver cannot be used; empty where it can.
std::string initialise(const DriverTable& t) {
  if (const abi::Result result = t.init(0); result != abi::Result::kSuccess) {
    const char* name = nullptr;
    t.get_error_name(result, &name);
    return fmt::format("cuInit failed: {}; {}", name == nullptr ? "unknown error" : name,
                       remedy(result));
  }
  int version = 0;
  t.driver_get_version(&version);
  if (version < kMinDriverVersion) {
    return fmt::format("the driver supports CUDA {}.{}, and {}.{} is needed; update the driver",
                       version / 1000, version % 1000 / 10, kMinDriverVersion / 1000,
                       kMinDriverVersion % 1000 / 10);
  }
  int count = 0;
  t.device_get_count(&count);
  if (count == 0) return fmt::format("no GPU; {}", remedy(abi::Result::kNoDevice));
  return {};
}

/// Fills the table, and returns as initialise() does.
std::string load_table(DriverTable& t) {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return fmt::format("{} cannot be loaded ({}); install NVIDIA's driver, or use CPU tensors",
                       kLibrary, reason == nullptr ? "no reason given" : reason);
  }
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    return fmt::format("{} is older than CUDA 12.0; update the driver", kLibrary);
  }
  Loader loader(get);
  load_devices_and_modules(loader, t);
  load_memory_and_streams(loader, t);
  if (loader.missing() != nullptr) {
    return fmt::format("{} has no {}; update the driver", kLibrary, loader.missing());
  }
  return initialise(t);
}

const Loaded& real_driver() {
  static const Loaded& loaded = *[] {
    auto* result = new Loaded;
    result->failure = load_table(result->table);
    return result;
  }();
  return loaded;
}

/// What driver() returns without further questions; null until the real one is loaded.
constinit std::atomic<const DriverTable*> active_table = nullptr;

}  // namespace

const DriverTable& driver() {
  if (const DriverTable* table = active_table.load(std::memory_order_acquire)) return *table;
  const Loaded& real = real_driver();
  TILEOPS_CHECK(ErrorKind::kDevice, real.failure.empty(), "CUDA is not available: {}",
                real.failure);
  active_table.store(&real.table, std::memory_order_release);
  return real.table;
}

std::optional<std::string> why_unavailable() {
  if (active_table.load(std::memory_order_acquire) != nullptr) return std::nullopt;
  const Loaded& real = real_driver();
  if (real.failure.empty()) return std::nullopt;
  return real.failure;
}

bool available() { return !why_unavailable().has_value(); }

void set_driver_for_testing(const DriverTable* table) {
  active_table.store(table, std::memory_order_release);
}

}  // namespace tileops::cuda
