// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/launch_graph.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "tileops/core/hash.h"
#include "tileops/cuda/capture.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/driver_check.h"
#include "tileops/cuda/graph.h"

namespace tileops::cuda {
namespace {

abi::Stream handle_of(Stream stream) { return static_cast<abi::Stream>(stream.handle); }

/// The node that the last launch on a capturing stream became.
abi::GraphNode last_node(Stream stream) {
  abi::CaptureStatus status = abi::CaptureStatus::kNone;
  uint64_t id = 0;
  abi::Graph graph = nullptr;
  const abi::GraphNode* nodes = nullptr;
  size_t count = 0;
  TILEOPS_DRIVER_CHECK(
      driver().stream_get_capture_info(handle_of(stream), &status, &id, &graph, &nodes, &count),
      "asking for the last kernel of a capture on {}", to_string(stream.device));
  TILEOPS_CHECK(ErrorKind::kInternal, count == 1, "a captured launch on {} became {} nodes",
                to_string(stream.device), count);
  return nodes[0];
}

abi::KernelNodeParams node_params(PutOffLaunch& launch) {
  const LaunchShape& shape = launch.shape;
  return {.function = launch.function->handle,
          .grid_x = shape.grid.x,
          .grid_y = shape.grid.y,
          .grid_z = shape.grid.z,
          .cta_x = shape.cta.x,
          .cta_y = shape.cta.y,
          .cta_z = shape.cta.z,
          .dynamic_smem_bytes = static_cast<unsigned>(shape.smem_bytes),
          .arguments = launch.arguments.data(),
          .extra = nullptr,
          .kernel = nullptr,
          .context = nullptr};
}

}  // namespace

LaunchGraphKey::LaunchGraphKey(Stream s, std::span<PutOffLaunch> launches)
    : stream(s), count(launches.size()) {
  hash = hash_of(stream.device.index, stream.handle, count);
  for (size_t i = 0; i < count; ++i) {
    const LaunchShape& shape = launches[i].shape;
    nodes[i] = {launches[i].function->handle, shape.cluster, shape.order};
    hash = hash_mix(hash, hash_of(static_cast<void*>(nodes[i].function), shape.cluster.x,
                                  static_cast<int>(shape.order)));
  }
}

LaunchGraph::LaunchGraph(const LaunchGraphKey& key, std::span<PutOffLaunch> launches) : key_(key) {
  const Device device = key.stream.device;
  const ContextGuard context(device);
  const RelaxedCapture relaxed;
  graph_ = capture(launches);
  const abi::Result result = driver().graph_instantiate_with_flags(&exec_, graph_, 0);
  if (result == abi::Result::kSuccess) return;
  driver().graph_destroy(graph_);
  TILEOPS_DRIVER_CHECK(result, "making {} launches on {} one graph", launches.size(),
                       to_string(device));
}

LaunchGraph::~LaunchGraph() {
  driver().graph_exec_destroy(exec_);
  driver().graph_destroy(graph_);
}

/// On a stream of its own: the default stream cannot be captured.
abi::Graph LaunchGraph::capture(std::span<PutOffLaunch> launches) {
  const OwnedStream stream(key_.stream.device);
  TILEOPS_DRIVER_CHECK(
      driver().stream_begin_capture(handle_of(stream), abi::CaptureMode::kThreadLocal),
      "beginning a capture on {}", to_string(key_.stream.device));
  abi::Graph graph = nullptr;
  try {
    for (PutOffLaunch& launch : launches) {
      launch_now(*launch.function, launch.shape, stream, launch.arguments.data());
      kernels_.push_back({last_node(stream), launch.shape, {}});
    }
  } catch (...) {
    driver().stream_end_capture(handle_of(stream), &graph);
    if (graph != nullptr) driver().graph_destroy(graph);
    throw;
  }
  TILEOPS_DRIVER_CHECK(driver().stream_end_capture(handle_of(stream), &graph),
                       "ending a capture on {}", to_string(key_.stream.device));
  return graph;
}

/// Half of a kernel's cost for the host; many of a layer's have the arguments of the layer before.
void LaunchGraph::set(Kernel& kernel, PutOffLaunch& launch) {
  const size_t size = launch.bytes.size();
  if (kernel.shape == launch.shape && kernel.bytes.size() == size &&
      std::memcmp(kernel.bytes.data(), launch.bytes.data(), size) == 0) {
    return;
  }
  kernel.bytes.clear();
  const abi::KernelNodeParams params = node_params(launch);
  TILEOPS_DRIVER_CHECK(driver().graph_exec_kernel_node_set_params(exec_, kernel.node, &params),
                       "launching {}", describe(*launch.function, launch.shape));
  kernel.shape = launch.shape;
  kernel.bytes.assign(launch.bytes.begin(), launch.bytes.end());
}

void LaunchGraph::run(std::span<PutOffLaunch> launches) {
  const ContextGuard context(key_.stream.device);
  for (size_t i = 0; i < launches.size(); ++i) set(kernels_[i], launches[i]);
  TILEOPS_DRIVER_CHECK(driver().graph_launch(exec_, handle_of(key_.stream)),
                       "launching {} kernels, the first {}", launches.size(),
                       describe(*launches[0].function, launches[0].shape));
}

std::unique_ptr<LaunchGraph> LaunchGraphs::take(const LaunchGraphKey& key,
                                                std::span<PutOffLaunch> launches) {
  {
    std::lock_guard lock(mutex_);
    const auto it =
        std::find_if(kept_.rbegin(), kept_.rend(), [&](const auto& g) { return g->key() == key; });
    if (it != kept_.rend()) {
      std::unique_ptr<LaunchGraph> graph = std::move(*it);
      kept_.erase(std::next(it).base());
      return graph;
    }
    if (seen_.size() >= kMaxSeen) seen_.clear();
    if (seen_.insert(key.hash).second) return nullptr;
  }
  return std::make_unique<LaunchGraph>(key, launches);
}

void LaunchGraphs::give_back(std::unique_ptr<LaunchGraph> graph) {
  std::unique_ptr<LaunchGraph> oldest;
  std::lock_guard lock(mutex_);
  if (kept_.size() == kMaxKept) {
    oldest = std::move(kept_.front());
    kept_.erase(kept_.begin());
  }
  kept_.push_back(std::move(graph));
}

void LaunchGraphs::clear() {
  std::vector<std::unique_ptr<LaunchGraph>> dropped;
  std::lock_guard lock(mutex_);
  dropped.swap(kept_);
  seen_.clear();
}

LaunchGraphs& launch_graphs() {
  static auto& graphs = *new LaunchGraphs;
  return graphs;
}

}  // namespace tileops::cuda
