// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, found by dlopen at its first use, as a table of functions.
#pragma once

#include <optional>
#include <string>

#include "tileops/cuda/driver_abi.h"

namespace tileops::cuda {

/// The driver functions that the library calls; the member's name is the function's without "cu".
struct DriverTable {
  abi::Result (*init)(unsigned flags);
  abi::Result (*driver_get_version)(int* version);
  abi::Result (*get_error_name)(abi::Result error, const char** name);
  abi::Result (*get_error_string)(abi::Result error, const char** text);

  abi::Result (*device_get_count)(int* count);
  abi::Result (*device_get)(abi::DeviceOrdinal* device, int ordinal);
  abi::Result (*device_get_name)(char* name, int length, abi::DeviceOrdinal device);
  abi::Result (*device_get_attribute)(int* value, abi::DeviceAttribute attribute,
                                      abi::DeviceOrdinal device);
  abi::Result (*device_primary_ctx_retain)(abi::Context* context, abi::DeviceOrdinal device);
  abi::Result (*ctx_get_current)(abi::Context* context);
  abi::Result (*ctx_set_current)(abi::Context context);
  abi::Result (*ctx_get_device)(abi::DeviceOrdinal* device);

  abi::Result (*module_load_data)(abi::Module* module, const void* image);
  abi::Result (*module_unload)(abi::Module module);
  abi::Result (*module_get_function)(abi::Function* function, abi::Module module, const char* name);
  abi::Result (*func_set_attribute)(abi::Function function, abi::FunctionAttribute attribute,
                                    int value);
  abi::Result (*func_get_attribute)(int* value, abi::FunctionAttribute attribute,
                                    abi::Function function);
  abi::Result (*occupancy_max_active_clusters)(int* count, abi::Function function,
                                               const abi::LaunchConfig* config);
  abi::Result (*launch_kernel_ex)(const abi::LaunchConfig* config, abi::Function function,
                                  void** arguments, void** extra);
  abi::Result (*tensor_map_encode_tiled)(void* tensor_map, abi::TensorMapDataType type,
                                         uint32_t rank, void* address, const uint64_t* dims,
                                         const uint64_t* strides, const uint32_t* box,
                                         const uint32_t* element_strides, int interleave,
                                         int swizzle, int l2_promotion, int fill);

  abi::Result (*mem_pool_create)(abi::MemPool* pool, const abi::MemPoolProps* props);
  abi::Result (*mem_pool_set_attribute)(abi::MemPool pool, int attribute, void* value);
  abi::Result (*mem_pool_trim_to)(abi::MemPool pool, size_t bytes_to_keep);
  abi::Result (*mem_alloc_from_pool_async)(abi::DevicePtr* data, size_t bytes, abi::MemPool pool,
                                           abi::Stream stream);
  abi::Result (*mem_free_async)(abi::DevicePtr data, abi::Stream stream);
  abi::Result (*mem_get_info)(size_t* free_bytes, size_t* total_bytes);
  abi::Result (*memcpy_htod_async)(abi::DevicePtr destination, const void* source, size_t bytes,
                                   abi::Stream stream);
  abi::Result (*memcpy_dtoh_async)(void* destination, abi::DevicePtr source, size_t bytes,
                                   abi::Stream stream);
  abi::Result (*memset_d8_async)(abi::DevicePtr destination, unsigned char value, size_t bytes,
                                 abi::Stream stream);

  abi::Result (*stream_create)(abi::Stream* stream, unsigned flags);
  abi::Result (*stream_destroy)(abi::Stream stream);
  abi::Result (*stream_synchronize)(abi::Stream stream);
  abi::Result (*stream_is_capturing)(abi::Stream stream, abi::CaptureStatus* status);
  abi::Result (*stream_get_capture_info)(abi::Stream stream, abi::CaptureStatus* status,
                                         uint64_t* capture_id, abi::Graph* graph,
                                         const abi::GraphNode** dependencies,
                                         size_t* num_dependencies);
  abi::Result (*stream_begin_capture)(abi::Stream stream, abi::CaptureMode mode);
  abi::Result (*stream_end_capture)(abi::Stream stream, abi::Graph* graph);
  abi::Result (*stream_wait_event)(abi::Stream stream, abi::Event event, unsigned flags);
  abi::Result (*thread_exchange_stream_capture_mode)(abi::CaptureMode* mode);
  abi::Result (*graph_instantiate_with_flags)(abi::GraphExec* exec, abi::Graph graph,
                                              unsigned long long flags);
  abi::Result (*graph_exec_kernel_node_set_params)(abi::GraphExec exec, abi::GraphNode node,
                                                   const abi::KernelNodeParams* params);
  abi::Result (*graph_launch)(abi::GraphExec exec, abi::Stream stream);
  abi::Result (*graph_exec_destroy)(abi::GraphExec exec);
  abi::Result (*graph_destroy)(abi::Graph graph);
  abi::Result (*user_object_create)(abi::UserObject* object, void* data, void (*destroy)(void*),
                                    unsigned references, unsigned flags);
  abi::Result (*graph_retain_user_object)(abi::Graph graph, abi::UserObject object,
                                          unsigned references, unsigned flags);

  abi::Result (*event_create)(abi::Event* event, unsigned flags);
  abi::Result (*event_destroy)(abi::Event event);
  abi::Result (*event_record)(abi::Event event, abi::Stream stream);
  abi::Result (*event_synchronize)(abi::Event event);
  abi::Result (*event_elapsed_time)(float* milliseconds, abi::Event start, abi::Event end);
};

/// The table of this process's driver, loaded and initialised by the first call.
/// Errors: kDevice with the reason and the remedy (no driver, too old, no GPU).
const DriverTable& driver();

/// Whether the driver can be used and sees a GPU.
bool available();
/// One line that says why not, and what mends it; none where it is available.
std::optional<std::string> why_unavailable();

/// Replaces the table that driver() returns (null: the real driver); for tests.
void set_driver_for_testing(const DriverTable* table);

}  // namespace tileops::cuda
