// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/small_blocks.h"

namespace tileops::cuda {

std::vector<void*>* SmallBlocks::list_of(Stream stream, size_t bytes) {
  auto it = lists_.find(stream);
  if (it == lists_.end()) {
    if (stream.handle != nullptr) return nullptr;
    it = lists_.emplace(stream, Lists()).first;
  }
  return &it->second[size_index(bytes)];
}

void* SmallBlocks::take(Stream stream, size_t bytes) {
  std::lock_guard lock(mutex_);
  std::vector<void*>* list = list_of(stream, bytes);
  if (list == nullptr || list->empty()) return nullptr;
  void* data = list->back();
  list->pop_back();
  return data;
}

bool SmallBlocks::keep(Stream stream, void* data, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (!captured_.empty() && captured_.erase(data) > 0) return false;
  std::vector<void*>* list = list_of(stream, bytes);
  if (list == nullptr || list->size() >= kMaxBlocks) return false;
  list->push_back(data);
  return true;
}

void SmallBlocks::mark_captured(void* data) {
  std::lock_guard lock(mutex_);
  captured_.insert(data);
}

void SmallBlocks::open(Stream stream) {
  std::lock_guard lock(mutex_);
  lists_.try_emplace(stream);
}

std::vector<void*> SmallBlocks::close(Stream stream) {
  std::lock_guard lock(mutex_);
  std::vector<void*> all;
  const auto it = lists_.find(stream);
  if (it == lists_.end()) return all;
  for (const auto& list : it->second) all.insert(all.end(), list.begin(), list.end());
  lists_.erase(it);
  return all;
}

std::vector<SmallBlocks::Kept> SmallBlocks::take_all(Device device) {
  std::lock_guard lock(mutex_);
  std::vector<Kept> all;
  for (auto& [stream, lists] : lists_) {
    if (!(stream.device == device)) continue;
    for (auto& list : lists) {
      for (void* data : list) all.push_back({stream, data});
      list.clear();
    }
  }
  return all;
}

SmallBlocks& small_blocks() {
  static auto& instance = *new SmallBlocks;
  return instance;
}

}  // namespace tileops::cuda
