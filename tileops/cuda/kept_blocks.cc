// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/kept_blocks.h"

#include <utility>

namespace tileops::cuda {

KeptBlocks::OfStream* KeptBlocks::find(Stream stream) {
  if (latest_ != nullptr && latest_->first == stream) return &latest_->second;
  auto it = streams_.find(stream);
  if (it == streams_.end()) {
    if (stream.handle != nullptr) return nullptr;
    it = streams_.emplace(stream, OfStream()).first;
  }
  latest_ = &*it;
  return &it->second;
}

/// The smallest large block that fits.
void* KeptBlocks::take_fitting(OfStream& kept, size_t bytes) {
  auto best = kept.large.end();
  for (auto it = kept.large.begin(); it != kept.large.end(); ++it) {
    const bool fits = it->bytes >= bytes && it->bytes - bytes <= bytes / 8;
    if (fits && (best == kept.large.end() || it->bytes < best->bytes)) best = it;
  }
  if (best == kept.large.end()) return nullptr;
  const LargeBlock block = *best;
  *best = kept.large.back();
  kept.large.pop_back();
  kept.large_bytes -= block.bytes;
  if (block.bytes > bytes) oversized_[block.data] = block.bytes;
  return block.data;
}

void* KeptBlocks::take(Stream stream, size_t bytes) {
  std::lock_guard lock(mutex_);
  OfStream* kept = find(stream);
  if (kept == nullptr) return nullptr;
  if (bytes > kSmallBytes) return take_fitting(*kept, bytes);
  std::vector<void*>& list = kept->small[size_index(bytes)];
  if (list.empty()) return nullptr;
  void* data = list.back();
  list.pop_back();
  return data;
}

bool KeptBlocks::keep(Stream stream, void* data, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (!captured_.empty() && captured_.erase(data) > 0) return false;
  if (!oversized_.empty()) {
    if (const auto node = oversized_.extract(data)) bytes = node.mapped();
  }
  OfStream* kept = find(stream);
  if (kept == nullptr) return false;
  if (bytes > kSmallBytes) {
    if (bytes > kMaxLargeBytes - kept->large_bytes) return false;
    kept->large.push_back({data, bytes});
    kept->large_bytes += bytes;
    return true;
  }
  std::vector<void*>& list = kept->small[size_index(bytes)];
  if (list.size() >= kMaxBlocks) return false;
  list.push_back(data);
  return true;
}

void KeptBlocks::mark_captured(void* data) {
  std::lock_guard lock(mutex_);
  captured_.insert(data);
}

void KeptBlocks::open(Stream stream) {
  std::lock_guard lock(mutex_);
  streams_.try_emplace(stream);
}

std::vector<void*> KeptBlocks::close(Stream stream) {
  std::lock_guard lock(mutex_);
  std::vector<void*> all;
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return all;
  for (const auto& list : it->second.small) all.insert(all.end(), list.begin(), list.end());
  for (const LargeBlock& block : it->second.large) all.push_back(block.data);
  latest_ = nullptr;
  streams_.erase(it);
  return all;
}

std::vector<void*> KeptBlocks::take_large(Stream stream) {
  std::lock_guard lock(mutex_);
  std::vector<void*> all;
  OfStream* kept = find(stream);
  if (kept == nullptr) return all;
  for (const LargeBlock& block : kept->large) all.push_back(block.data);
  kept->large.clear();
  kept->large_bytes = 0;
  return all;
}

std::vector<KeptBlocks::Kept> KeptBlocks::take_all(Device device) {
  std::lock_guard lock(mutex_);
  std::vector<Kept> all;
  for (auto& [stream, kept] : streams_) {
    if (!(stream.device == device)) continue;
    for (size_t i = 0; i < kSizes; ++i) {
      for (void* data : kept.small[i]) all.push_back({stream, data, kLeastBytes << i});
    }
    for (const LargeBlock& block : kept.large) all.push_back({stream, block.data, block.bytes});
    kept = {};
  }
  return all;
}

KeptBlocks& kept_blocks() {
  static auto& instance = *new KeptBlocks;
  return instance;
}

}  // namespace tileops::cuda
