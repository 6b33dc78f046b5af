// SPDX-License-Identifier: Apache-2.0
// Blocks of device memory that were given back, kept by stream for its next tensors: asking the
// driver costs microseconds. Private to the library's sources.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tileops/core/hash.h"
#include "tileops/core/stream.h"

namespace tileops::cuda {

/// Kept for the default streams and for those that `open` names: a stream that somebody else
/// destroys may leave its handle to another while its work still runs.
/// Thread safety: all members.
class KeptBlocks {
 public:
  /// Up to so many bytes a block is small: it serves all of its power of two.
  static constexpr size_t kSmallBytes = 1 << 20;
  /// Of a stream's large blocks together. A large one serves what needs at least 8/9 of it.
  static constexpr size_t kMaxLargeBytes = 64 << 20;

  /// What a fresh block for `bytes` takes.
  static constexpr size_t block_bytes(size_t bytes) {
    if (bytes > kSmallBytes) return bytes;
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
  /// The large blocks that the stream kept.
  std::vector<void*> take_large(Stream stream);
  struct Kept {
    Stream stream;
    void* data;
    size_t bytes;
  };
  /// All that a device's streams kept.
  std::vector<Kept> take_all(Device device);

 private:
  static constexpr size_t kLeastBytes = 256;
  static constexpr size_t kSizes =
      std::countr_zero(kSmallBytes) - std::countr_zero(kLeastBytes) + 1;
  static constexpr size_t kMaxBlocks = 32;  // small ones of one size and stream
  struct LargeBlock {
    void* data;
    size_t bytes;
  };
  struct OfStream {
    std::array<std::vector<void*>, kSizes> small;
    std::vector<LargeBlock> large;
    size_t large_bytes = 0;
  };
  struct StreamHash {
    size_t operator()(const Stream& stream) const {
      return hash_of(stream.device.index, stream.handle);
    }
  };

  static size_t size_index(size_t bytes) {
    return static_cast<size_t>(std::countr_zero(block_bytes(bytes)) -
                               std::countr_zero(kLeastBytes));
  }
  OfStream* find(Stream stream);
  void* take_fitting(OfStream& kept, size_t bytes);

  std::mutex mutex_;  // guards the members below
  std::unordered_map<Stream, OfStream, StreamHash> streams_;
  std::pair<const Stream, OfStream>* latest_ = nullptr;  // of streams_, which was asked for last
  std::unordered_map<void*, size_t>
      oversized_;  // large blocks in use, that serve less than they have
  std::unordered_set<void*> captured_;
};

/// The process's. Never destroyed.
KeptBlocks& kept_blocks();

}  // namespace tileops::cuda
