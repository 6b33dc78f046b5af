// SPDX-License-Identifier: Apache-2.0
// For tests: a driver of ordinary functions, so that everything above it runs on a machine without a
// GPU. Device memory is host memory, and every call is on record.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tileops/core/stream.h"
#include "tileops/cuda/driver.h"

namespace tileops::cuda {

inline constexpr Device kCuda0{DeviceType::kCUDA, 0};
inline constexpr Device kCuda1{DeviceType::kCUDA, 1};
inline constexpr Stream kStream{kCuda0, nullptr};

/// A launch as the driver saw it.
struct FakeLaunch {
  abi::LaunchConfig config{};
  std::vector<abi::LaunchAttribute> attributes;
  bool in_graph = false;
};

/// A kernel of a captured graph, with the arguments that were set last.
struct FakeNode {
  FakeLaunch launch;
  void** arguments = nullptr;
};
/// Nodes in launch order; a graph's and, copied, an instance's.
using FakeNodes = std::vector<std::pair<abi::GraphNode, FakeNode>>;

/// Two devices of capability 9.0 ("Fake H200"). Installed while it lives; one at a time.
class FakeDriver {
 public:
  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  /// The next calls of a function ("launch_kernel_ex") return this.
  void fail(const std::string& function, abi::Result result) { failures[function] = result; }
  void succeed(const std::string& function) { failures.erase(function); }
  /// What a function returns now.
  abi::Result result_of(const std::string& function) const;

  int num_devices = 2;
  int version = 13000;
  int smem_bytes = 232448;
  int static_smem_bytes = 1024;
  int max_threads = 1024;
  bool capturing = false;
  FakeNodes captured;  // since the capture began
  uint64_t num_captures = 0;
  std::vector<std::function<void()>> user_objects;  // destroyed with the next graph instance
  std::map<std::string, abi::Result> failures;

  std::vector<FakeLaunch> launches;
  std::function<void(void** arguments)> on_launch;
  std::vector<std::string> loaded_images;
  int64_t num_unloaded = 0;
  int64_t max_dynamic_smem = 0;
  int64_t num_synchronized = 0;
  int64_t num_tensor_maps = 0;
  std::vector<uint64_t> tensor_map_dims, tensor_map_strides;
  std::vector<uint32_t> tensor_map_box;
  int64_t live_allocations = 0;
  int64_t live_bytes = 0;
  int64_t memory_bytes = int64_t{1} << 40;  // an allocation that passes it fails
  int64_t num_allocations = 0;              // calls of the driver
  int64_t num_frees = 0;
  int64_t num_graph_launches = 0;
  int64_t num_params_set = 0;  // of kernels in graphs
  std::map<abi::Graph, FakeNodes> graphs;
  std::map<abi::GraphExec, FakeNodes> execs;
};

}  // namespace tileops::cuda
