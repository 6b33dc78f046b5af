// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/graph.h"

#include <utility>

#include "tileops/core/launch_batch.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/driver_check.h"
#include "tileops/cuda/kept_blocks.h"

namespace tileops::cuda {
namespace {

abi::Stream handle_of(Stream stream) { return static_cast<abi::Stream>(stream.handle); }

/// Ends a capture; the graph is the caller's.
abi::Graph end_capture(Stream stream) {
  abi::Graph graph = nullptr;
  TILEOPS_DRIVER_CHECK(driver().stream_end_capture(handle_of(stream), &graph),
                       "ending a capture on {}", to_string(stream.device));
  return graph;
}

}  // namespace

OwnedStream::OwnedStream(Device device) {
  const ContextGuard context(device);
  abi::Stream handle = nullptr;
  TILEOPS_DRIVER_CHECK(driver().stream_create(&handle, abi::kStreamNonBlocking),
                       "making a stream on {}", to_string(device));
  stream_ = {device, handle};
  kept_blocks().open(stream_);
}

OwnedStream::OwnedStream(OwnedStream&& other) noexcept
    : stream_(std::exchange(other.stream_, {other.stream_.device, nullptr})) {}

OwnedStream& OwnedStream::operator=(OwnedStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

OwnedStream::~OwnedStream() {
  if (stream_.handle == nullptr) return;
  for (void* data : kept_blocks().close(stream_)) {
    driver().mem_free_async(reinterpret_cast<abi::DevicePtr>(data), handle_of(stream_));
  }
  driver().stream_destroy(handle_of(stream_));
}

Graph Graph::capture(Stream stream, const std::function<void()>& work) {
  submit_launches();
  const ContextGuard context(stream.device);
  TILEOPS_DRIVER_CHECK(
      driver().stream_begin_capture(handle_of(stream), abi::CaptureMode::kThreadLocal),
      "beginning a capture on {}", to_string(stream.device));
  try {
    const StreamGuard current(stream);
    work();
  } catch (...) {
    abi::Graph unused = nullptr;
    driver().stream_end_capture(handle_of(stream), &unused);
    if (unused != nullptr) driver().graph_destroy(unused);
    throw;
  }
  const abi::Graph graph = end_capture(stream);
  abi::GraphExec exec = nullptr;
  const abi::Result result =
      driver().graph_instantiate_with_flags(&exec, graph, abi::kGraphAutoFreeOnLaunch);
  driver().graph_destroy(graph);
  TILEOPS_DRIVER_CHECK(result, "making a captured graph ready on {}", to_string(stream.device));
  return Graph(stream.device, exec);
}

Graph::Graph(Graph&& other) noexcept
    : device_(other.device_), exec_(std::exchange(other.exec_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(exec_, other.exec_);
  return *this;
}

Graph::~Graph() {
  if (exec_ != nullptr) driver().graph_exec_destroy(exec_);
}

void Graph::replay(Stream stream) const {
  submit_launches();
  const ContextGuard context(device_);
  TILEOPS_DRIVER_CHECK(driver().graph_launch(exec_, handle_of(stream)), "replaying a graph on {}",
                       to_string(device_));
}

}  // namespace tileops::cuda
