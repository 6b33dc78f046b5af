// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/workspace.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "tileops/core/hash.h"
#include "tileops/cuda/allocator.h"
#include "tileops/cuda/capture.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/driver_check.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"

namespace tileops::cuda {
namespace {

/// What all kernels of this library ask for at most, most often: a block that starts with it does
/// not grow.
constexpr int64_t kLeastBytes = 24 << 20;

struct Block {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

/// Who uses a block: a stream, or the part of a capture that goes through it.
struct User {
  Stream stream;
  uint64_t capture_id = 0;  // 0: no capture
  bool operator==(const User&) const = default;
};
struct UserHash {
  size_t operator()(const User& user) const {
    return hash_of(user.stream.device.index, user.stream.handle, user.capture_id);
  }
};

/// Blocks are never given back to the driver: work that nobody waits for may still use them.
class Blocks {
 public:
  Block find(const User& user) const {
    std::shared_lock lock(mutex_);
    const auto it = in_use_.find(user);
    return it == in_use_.end() ? Block() : it->second;
  }

  /// A block that is larger than the user's former one, and now its own.
  Block replace(const User& user, int64_t bytes) {
    const Block block = take_free(user.stream.device, bytes);
    const Block made = block.data != nullptr ? block : make(user.stream.device, bytes);
    std::unique_lock lock(mutex_);
    in_use_[user] = made;
    return made;
  }

  void release(const User& user) {
    std::unique_lock lock(mutex_);
    const auto it = in_use_.find(user);
    if (it == in_use_.end()) return;
    free_[user.stream.device.index].push_back(it->second);
    in_use_.erase(it);
  }

  std::mutex making;  // held while a block is made, so that a user gets one

 private:
  Block take_free(Device device, int64_t bytes) {
    std::unique_lock lock(mutex_);
    std::vector<Block>& blocks = free_[device.index];
    const auto it = std::find_if(blocks.begin(), blocks.end(),
                                 [bytes](const Block& block) { return block.bytes >= bytes; });
    if (it == blocks.end()) return {};
    const Block block = *it;
    blocks.erase(it);
    return block;
  }

  /// On a stream of its own: the user's may be in a capture.
  static Block make(Device device, int64_t bytes) {
    const ContextGuard context(device);
    const RelaxedCapture relaxed;
    const OwnedStream stream(device);
    void* data = stream_ordered_allocator().allocate(static_cast<size_t>(bytes), stream);
    fill_bytes(data, 0, kZeroedBytes, stream);
    synchronize(stream);
    return {static_cast<std::byte*>(data), bytes};
  }

  mutable std::shared_mutex mutex_;  // guards the members below
  std::unordered_map<User, Block, UserHash> in_use_;
  std::unordered_map<int32_t, std::vector<Block>> free_;  // by device: of graphs that are gone
};

Blocks& blocks() {
  static auto& instance = *new Blocks;
  return instance;
}

struct Capture {
  uint64_t id = 0;  // 0: none
  abi::Graph graph = nullptr;
};

Capture capture_of(Stream stream) {
  abi::CaptureStatus status = abi::CaptureStatus::kNone;
  Capture capture;
  TILEOPS_DRIVER_CHECK(
      driver().stream_get_capture_info(static_cast<abi::Stream>(stream.handle), &status,
                                       &capture.id, &capture.graph, nullptr, nullptr),
      "asking whether a stream of {} is being captured", to_string(stream.device));
  return status == abi::CaptureStatus::kActive ? capture : Capture();
}

/// Gives the user's block back when the graph, and what was instantiated of it, is destroyed.
void release_with_graph(const User& user, abi::Graph graph) {
  auto owned = std::make_unique<User>(user);
  const auto release = [](void* data) {
    const std::unique_ptr<User> of_graph(static_cast<User*>(data));
    blocks().release(*of_graph);
  };
  abi::UserObject object = nullptr;
  TILEOPS_DRIVER_CHECK(driver().user_object_create(&object, owned.get(), release, 1,
                                                   abi::kUserObjectNoDestructorSync),
                       "binding a workspace to a captured graph on {}",
                       to_string(user.stream.device));
  (void)owned.release();
  TILEOPS_DRIVER_CHECK(
      driver().graph_retain_user_object(graph, object, 1, abi::kGraphUserObjectMove),
      "binding a workspace to a captured graph on {}", to_string(user.stream.device));
}

Workspace split(const Block& block) { return {block.data, block.data + kZeroedBytes}; }

}  // namespace

Workspace workspace(Stream stream, int64_t scratch_bytes) {
  const ContextGuard context(stream.device);
  const Capture capture = capture_of(stream);
  const User user{stream, capture.id};
  const int64_t bytes = std::max(kZeroedBytes + scratch_bytes, kLeastBytes);
  if (const Block known = blocks().find(user); known.bytes >= bytes) return split(known);
  std::lock_guard lock(blocks().making);
  const Block former = blocks().find(user);
  if (former.bytes >= bytes) return split(former);
  const Block block = blocks().replace(user, std::max(bytes, 2 * former.bytes));
  if (capture.id != 0 && former.data == nullptr) release_with_graph(user, capture.graph);
  return split(block);
}

}  // namespace tileops::cuda
