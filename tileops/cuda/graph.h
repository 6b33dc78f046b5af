// SPDX-License-Identifier: Apache-2.0
// Streams of our own, and work captured into graphs: for tests, benchmarks and tools.
#pragma once

#include <functional>

#include "tileops/core/stream.h"
#include "tileops/cuda/driver_abi.h"

namespace tileops::cuda {

/// Owns a stream that does not wait for the default stream. Move-only.
class OwnedStream {
 public:
  explicit OwnedStream(Device device);
  OwnedStream(OwnedStream&& other) noexcept;
  OwnedStream& operator=(OwnedStream&& other) noexcept;
  ~OwnedStream();

  Stream get() const { return stream_; }
  operator Stream() const { return stream_; }

 private:
  Stream stream_;
};

/// Work that was captured, ready to be replayed. Tensors that the work makes keep their addresses
/// and get their contents anew with each replay. Move-only.
class Graph {
 public:
  /// Captures what `work` puts on `stream` (not the default stream), which is this thread's current
  /// one meanwhile. Errors: what `work` throws (the capture is ended), kInternal.
  static Graph capture(Stream stream, const std::function<void()>& work);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();

  /// Replays on a stream. Errors: kInternal.
  void replay(Stream stream) const;

 private:
  Graph(Device device, abi::GraphExec exec) : device_(device), exec_(exec) {}

  Device device_;
  abi::GraphExec exec_ = nullptr;
};

}  // namespace tileops::cuda
