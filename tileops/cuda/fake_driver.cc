// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/fake_driver.h"

#include "tileops/cuda/launch_batch.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace tileops::cuda {
namespace {

using abi::Result;

FakeDriver* fake = nullptr;
thread_local abi::Context current = nullptr;

template <class Handle>
Handle handle(uintptr_t value) {
  return reinterpret_cast<Handle>(value);
}

template <class Handle>
Handle new_handle() {
  static uintptr_t last = 1000;
  return handle<Handle>(++last);
}

const char* name_of(Result result) {
  switch (result) {
    case Result::kOutOfMemory:
      return "CUDA_ERROR_OUT_OF_MEMORY";
    case Result::kIllegalAddress:
      return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case Result::kInvalidValue:
      return "CUDA_ERROR_INVALID_VALUE";
    case Result::kNoBinaryForGpu:
      return "CUDA_ERROR_NO_BINARY_FOR_GPU";
    default:
      return nullptr;
  }
}

int attribute(abi::DeviceAttribute attribute) {
  switch (attribute) {
    case abi::DeviceAttribute::kMultiprocessorCount:
      return 132;
    case abi::DeviceAttribute::kL2CacheBytes:
      return 1024;
    case abi::DeviceAttribute::kComputeCapabilityMajor:
      return 9;
    case abi::DeviceAttribute::kComputeCapabilityMinor:
      return 0;
    case abi::DeviceAttribute::kMaxSharedMemoryOptIn:
      return fake->smem_bytes;
  }
  return 0;
}

int attribute(abi::FunctionAttribute attribute) {
  switch (attribute) {
    case abi::FunctionAttribute::kMaxThreads:
      return fake->max_threads;
    case abi::FunctionAttribute::kSharedBytes:
      return fake->static_smem_bytes;
    default:
      return 0;
  }
}

Result record_launch(const abi::LaunchConfig* config, abi::Function, void** arguments, void**) {
  const Result result = fake->result_of("launch_kernel_ex");
  if (result != Result::kSuccess) return result;
  const FakeLaunch launch = {*config,
                             {config->attributes, config->attributes + config->num_attributes}};
  if (fake->capturing) {
    fake->captured.push_back({new_handle<abi::GraphNode>(), {launch, arguments}});
    return result;
  }
  fake->launches.push_back(launch);
  if (fake->on_launch) fake->on_launch(arguments);
  return result;
}

Result set_node_params(abi::GraphExec exec, abi::GraphNode node,
                       const abi::KernelNodeParams* params) {
  const Result result = fake->result_of("graph_exec_kernel_node_set_params");
  ++fake->num_params_set;
  for (auto& [handle, kernel] : fake->execs.at(exec)) {
    if (handle != node) continue;
    abi::LaunchConfig& config = kernel.launch.config;
    config.grid_x = params->grid_x;
    config.cta_x = params->cta_x;
    config.dynamic_smem_bytes = params->dynamic_smem_bytes;
    kernel.arguments = params->arguments;
  }
  return result;
}

Result launch_graph(abi::GraphExec exec, abi::Stream stream) {
  const Result result = fake->result_of("graph_launch");
  if (result != Result::kSuccess) return result;
  ++fake->num_graph_launches;
  for (const auto& [handle, kernel] : fake->execs.at(exec)) {
    fake->launches.push_back(kernel.launch);
    fake->launches.back().config.stream = stream;
    fake->launches.back().in_graph = true;
    if (fake->on_launch) fake->on_launch(kernel.arguments);
  }
  return result;
}

Result encode(void* map, abi::TensorMapDataType, uint32_t rank, void*, const uint64_t* dims,
              const uint64_t* strides, const uint32_t* box, const uint32_t*, int, int, int, int) {
  ++fake->num_tensor_maps;
  fake->tensor_map_dims.assign(dims, dims + rank);
  fake->tensor_map_strides.assign(strides, strides + rank - 1);
  fake->tensor_map_box.assign(box, box + rank);
  std::memset(map, 0, 128);
  std::memcpy(map, &fake->num_tensor_maps, sizeof(fake->num_tensor_maps));
  return fake->result_of("tensor_map_encode_tiled");
}

/// Device memory that is never given back, as workspaces keep it, is no leak of the process's.
std::map<abi::DevicePtr, int64_t>& device_memory() {
  static auto* memory = new std::map<abi::DevicePtr, int64_t>();
  return *memory;
}
std::mutex device_memory_mutex;

Result allocate(abi::DevicePtr* data, size_t bytes, abi::MemPool, abi::Stream) {
  const Result result = fake->result_of("mem_alloc_from_pool_async");
  if (result != Result::kSuccess) return result;
  const auto size = static_cast<int64_t>(bytes);
  std::lock_guard lock(device_memory_mutex);
  ++fake->num_allocations;
  if (fake->live_bytes + size > fake->memory_bytes) return Result::kOutOfMemory;
  *data = reinterpret_cast<abi::DevicePtr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  ++fake->live_allocations;
  fake->live_bytes += size;
  device_memory()[*data] = size;
  return result;
}

void fill_devices_and_modules(DriverTable& t) {
  t.get_error_name = [](Result error, const char** name) {
    *name = name_of(error);
    return Result::kSuccess;
  };
  t.get_error_string = [](Result, const char** text) {
    *text = "the driver's words";
    return Result::kSuccess;
  };
  t.driver_get_version = [](int* version) {
    *version = fake->version;
    return Result::kSuccess;
  };
  t.device_get_count = [](int* count) {
    *count = fake->num_devices;
    return Result::kSuccess;
  };
  t.device_get = [](abi::DeviceOrdinal* device, int ordinal) {
    *device = ordinal;
    return Result::kSuccess;
  };
  t.device_get_name = [](char* name, int length, abi::DeviceOrdinal) {
    std::strncpy(name, "Fake H200", static_cast<size_t>(length));
    return Result::kSuccess;
  };
  t.device_get_attribute = [](int* value, abi::DeviceAttribute which, abi::DeviceOrdinal) {
    *value = attribute(which);
    return Result::kSuccess;
  };
  t.device_primary_ctx_retain = [](abi::Context* context, abi::DeviceOrdinal device) {
    *context = handle<abi::Context>(static_cast<uintptr_t>(device) + 1);
    return fake->result_of("device_primary_ctx_retain");
  };
  t.ctx_get_current = [](abi::Context* context) {
    *context = current;
    return Result::kSuccess;
  };
  t.ctx_set_current = [](abi::Context context) {
    current = context;
    return Result::kSuccess;
  };
  t.ctx_get_device = [](abi::DeviceOrdinal* device) {
    *device = static_cast<int>(reinterpret_cast<uintptr_t>(current)) - 1;
    return Result::kSuccess;
  };
  t.module_load_data = [](abi::Module* module, const void* image) {
    fake->loaded_images.emplace_back(static_cast<const char*>(image));
    *module = handle<abi::Module>(fake->loaded_images.size());
    return fake->result_of("module_load_data");
  };
  t.module_unload = [](abi::Module) {
    ++fake->num_unloaded;
    return Result::kSuccess;
  };
  t.module_get_function = [](abi::Function* function, abi::Module module, const char*) {
    *function = handle<abi::Function>(reinterpret_cast<uintptr_t>(module));
    return fake->result_of("module_get_function");
  };
  t.func_set_attribute = [](abi::Function, abi::FunctionAttribute, int value) {
    fake->max_dynamic_smem = value;
    return Result::kSuccess;
  };
  t.func_get_attribute = [](int* value, abi::FunctionAttribute which, abi::Function) {
    *value = attribute(which);
    return Result::kSuccess;
  };
  t.occupancy_max_active_clusters = [](int* count, abi::Function, const abi::LaunchConfig* config) {
    *count = config->num_attributes == 0 ? 132 : 60;
    return Result::kSuccess;
  };
  t.launch_kernel_ex = record_launch;
  t.tensor_map_encode_tiled = encode;
}

void fill_memory(DriverTable& t) {
  t.mem_pool_create = [](abi::MemPool* pool, const abi::MemPoolProps* props) {
    *pool = handle<abi::MemPool>(static_cast<uintptr_t>(props->location_id) + 1);
    return Result::kSuccess;
  };
  t.mem_pool_set_attribute = [](abi::MemPool, int, void*) { return Result::kSuccess; };
  t.mem_pool_trim_to = [](abi::MemPool, size_t) { return Result::kSuccess; };
  t.mem_alloc_from_pool_async = allocate;
  t.mem_free_async = [](abi::DevicePtr data, abi::Stream) {
    std::lock_guard lock(device_memory_mutex);
    const auto block = device_memory().extract(data);
    std::free(reinterpret_cast<void*>(data));
    --fake->live_allocations;
    fake->live_bytes -= block.mapped();
    ++fake->num_frees;
    return Result::kSuccess;
  };
  t.mem_get_info = [](size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = 100;
    *total_bytes = 1000;
    return Result::kSuccess;
  };
  t.memcpy_htod_async = [](abi::DevicePtr to, const void* from, size_t bytes, abi::Stream) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return Result::kSuccess;
  };
  t.memcpy_dtoh_async = [](void* to, abi::DevicePtr from, size_t bytes, abi::Stream) {
    std::memcpy(to, reinterpret_cast<void*>(from), bytes);
    return Result::kSuccess;
  };
  t.memset_d8_async = [](abi::DevicePtr to, unsigned char value, size_t bytes, abi::Stream) {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return Result::kSuccess;
  };
}

void fill_streams(DriverTable& t) {
  t.stream_create = [](abi::Stream* stream, unsigned) {
    *stream = handle<abi::Stream>(77);
    return Result::kSuccess;
  };
  t.stream_destroy = [](abi::Stream) { return Result::kSuccess; };
  t.stream_synchronize = [](abi::Stream) {
    ++fake->num_synchronized;
    return fake->result_of("stream_synchronize");
  };
  t.stream_is_capturing = [](abi::Stream, abi::CaptureStatus* status) {
    *status = fake->capturing ? abi::CaptureStatus::kActive : abi::CaptureStatus::kNone;
    return fake->result_of("stream_is_capturing");
  };
  t.stream_get_capture_info = [](abi::Stream, abi::CaptureStatus* status, uint64_t* id,
                                 abi::Graph* graph, const abi::GraphNode** nodes, size_t* count) {
    *status = fake->capturing ? abi::CaptureStatus::kActive : abi::CaptureStatus::kNone;
    *id = fake->num_captures;
    *graph = handle<abi::Graph>(5);
    if (nodes != nullptr && !fake->captured.empty()) {
      *nodes = &fake->captured.back().first;
      *count = 1;
    }
    return fake->result_of("stream_get_capture_info");
  };
  t.stream_begin_capture = [](abi::Stream, abi::CaptureMode) {
    fake->capturing = true;
    fake->captured.clear();
    ++fake->num_captures;
    return Result::kSuccess;
  };
  t.stream_end_capture = [](abi::Stream, abi::Graph* graph) {
    fake->capturing = false;
    *graph = new_handle<abi::Graph>();
    fake->graphs[*graph] = std::exchange(fake->captured, {});
    return Result::kSuccess;
  };
  t.stream_wait_event = [](abi::Stream, abi::Event, unsigned) { return Result::kSuccess; };
  t.thread_exchange_stream_capture_mode = [](abi::CaptureMode*) { return Result::kSuccess; };
  t.graph_instantiate_with_flags = [](abi::GraphExec* exec, abi::Graph graph, unsigned long long) {
    *exec = new_handle<abi::GraphExec>();
    fake->execs[*exec] = fake->graphs.at(graph);
    return fake->result_of("graph_instantiate_with_flags");
  };
  t.graph_exec_kernel_node_set_params = set_node_params;
  t.graph_launch = launch_graph;
  t.graph_exec_destroy = [](abi::GraphExec exec) {
    fake->execs.erase(exec);
    for (const auto& destroy : std::exchange(fake->user_objects, {})) destroy();
    return Result::kSuccess;
  };
  t.graph_destroy = [](abi::Graph graph) {
    fake->graphs.erase(graph);
    return Result::kSuccess;
  };
  t.user_object_create = [](abi::UserObject*, void* data, void (*destroy)(void*), unsigned,
                            unsigned) {
    fake->user_objects.push_back([data, destroy] { destroy(data); });
    return fake->result_of("user_object_create");
  };
  t.graph_retain_user_object = [](abi::Graph, abi::UserObject, unsigned, unsigned) {
    return fake->result_of("graph_retain_user_object");
  };
  t.event_create = [](abi::Event* event, unsigned) {
    *event = handle<abi::Event>(8);
    return Result::kSuccess;
  };
  t.event_destroy = [](abi::Event) { return Result::kSuccess; };
  t.event_record = [](abi::Event, abi::Stream) { return Result::kSuccess; };
  t.event_synchronize = [](abi::Event) { return Result::kSuccess; };
  t.event_elapsed_time = [](float* milliseconds, abi::Event, abi::Event) {
    *milliseconds = 0.25F;
    return Result::kSuccess;
  };
}

const DriverTable& fake_table() {
  static const DriverTable table = [] {
    DriverTable t{};
    fill_devices_and_modules(t);
    fill_memory(t);
    fill_streams(t);
    return t;
  }();
  return table;
}

}  // namespace

FakeDriver::FakeDriver() {
  fake = this;
  current = nullptr;
  set_driver_for_testing(&fake_table());
}

FakeDriver::~FakeDriver() {
  release_launch_graphs();
  set_driver_for_testing(nullptr);
  fake = nullptr;
}

abi::Result FakeDriver::result_of(const std::string& function) const {
  const auto it = failures.find(function);
  return it == failures.end() ? abi::Result::kSuccess : it->second;
}

}  // namespace tileops::cuda
