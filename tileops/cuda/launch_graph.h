// SPDX-License-Identifier: Apache-2.0
// Kernels of a batch of launches as one graph. Private to the library's sources.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include "tileops/core/stream.h"
#include "tileops/cuda/driver_abi.h"
#include "tileops/cuda/launch.h"

namespace tileops::cuda {

/// A launch with copies of its arguments, which lie in `bytes`.
struct PutOffLaunch {
  const Function* function = nullptr;
  LaunchShape shape;
  std::array<void*, kMaxLaunchArguments> arguments{};
  std::span<const std::byte> bytes;
  void (*undo_overlap)(void* argument) = nullptr;  // see undo_overlap_if_apart
};

/// What launches must have in common to share a graph; grids, CTAs and arguments are set anew.
struct LaunchGraphKey {
  struct Node {
    abi::Function function;
    Dim3 cluster;
    LaunchOrder order;
    bool operator==(const Node&) const = default;
  };
  static constexpr size_t kMaxNodes = 16;

  LaunchGraphKey(Stream stream, std::span<PutOffLaunch> launches);
  bool operator==(const LaunchGraphKey&) const = default;

  Stream stream;  // two streams do not wait for each other's graphs
  size_t hash = 0;
  size_t count = 0;
  std::array<Node, kMaxNodes> nodes{};
};

/// Thread safety: one thread at a time.
class LaunchGraph {
 public:
  /// Errors: kInternal.
  LaunchGraph(const LaunchGraphKey& key, std::span<PutOffLaunch> launches);
  ~LaunchGraph();
  LaunchGraph(const LaunchGraph&) = delete;
  LaunchGraph& operator=(const LaunchGraph&) = delete;

  const LaunchGraphKey& key() const { return key_; }
  /// Runs `launches`, which have this graph's key, on its stream. Errors: kInternal.
  void run(std::span<PutOffLaunch> launches);

 private:
  struct Kernel {
    abi::GraphNode node;
    LaunchShape shape;  // this and the bytes as the driver has them
    std::vector<std::byte> bytes;
  };

  abi::Graph capture(std::span<PutOffLaunch> launches);
  void set(Kernel& kernel, PutOffLaunch& launch);

  const LaunchGraphKey key_;
  std::vector<Kernel> kernels_;  // in launch order
  abi::Graph graph_ = nullptr;   // the nodes live as long
  abi::GraphExec exec_ = nullptr;
};

/// Graphs between their uses. Thread safety: all members.
class LaunchGraphs {
 public:
  /// A graph for launches of this key, the caller's alone; null at the key's first sight, since to
  /// make one takes as long as tens of launches. Errors: kInternal.
  std::unique_ptr<LaunchGraph> take(const LaunchGraphKey& key, std::span<PutOffLaunch> launches);
  void give_back(std::unique_ptr<LaunchGraph> graph);
  void clear();

 private:
  static constexpr size_t kMaxKept = 64;
  static constexpr size_t kMaxSeen = 4096;
  std::mutex mutex_;                                // guards the members below
  std::vector<std::unique_ptr<LaunchGraph>> kept_;  // the latest last
  std::unordered_set<size_t> seen_;                 // hashes of keys
};

/// The process's. Never destroyed.
LaunchGraphs& launch_graphs();

}  // namespace tileops::cuda
