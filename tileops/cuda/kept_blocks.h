// SPDX-License-Identifier: Apache-2.0
// Small blocks of device memory that were given back, kept by stream for its next tensors: asking
// the driver costs microseconds. Private to the library's sources.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tileops/core/hash.h"
#include "tileops/core/stream.h"

namespace tileops::cuda {

/// Kept for the default streams and for those that `open` names: a stream that somebody else
/// destroys may leave its handle to another while its work still runs.
/// Thread safety: all members.
class SmallBlocks {
 public:
  static constexpr size_t kMaxBytes = 1 << 20;

  /// What a block of `bytes` <= kMaxBytes takes: blocks of one size serve each other's askers.
  static constexpr size_t block_bytes(size_t bytes) {
    return std::bit_ceil(bytes < kLeastBytes ? kLeastBytes : bytes);
  }

  /// A block that the stream kept; null where there is none.
  void* take(Stream stream, size_t bytes);
  /// Whether the block is kept; a captured one never is: it belongs to its graph.
  bool keep(Stream stream, void* data, size_t bytes);
  void mark_captured(void* data);

  void open(Stream stream);
  /// All that the stream kept, which keeps nothing any more.
  std::vector<void*> close(Stream stream);
  struct Kept {
    Stream stream;
    void* data;
  };
  /// All that a device's streams kept.
  std::vector<Kept> take_all(Device device);

 private:
  static constexpr size_t kLeastBytes = 256;
  static constexpr size_t kSizes = std::countr_zero(kMaxBytes) - std::countr_zero(kLeastBytes) + 1;
  static constexpr size_t kMaxBlocks = 32;  // of one size and stream
  using Lists = std::array<std::vector<void*>, kSizes>;
  struct StreamHash {
    size_t operator()(const Stream& stream) const {
      return hash_of(stream.device.index, stream.handle);
    }
  };

  static size_t size_index(size_t bytes) {
    return static_cast<size_t>(std::countr_zero(block_bytes(bytes)) -
                               std::countr_zero(kLeastBytes));
  }
  std::vector<void*>* list_of(Stream stream, size_t bytes);

  std::mutex mutex_;  // guards the members below
  std::unordered_map<Stream, Lists, StreamHash> lists_;
  std::unordered_set<void*> captured_;
};

/// The process's. Never destroyed.
SmallBlocks& small_blocks();

}  // namespace tileops::cuda
