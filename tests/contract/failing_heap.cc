// SPDX-License-Identifier: Apache-2.0
#include "contract/failing_heap.h"

#include <cstdlib>
#include <new>

namespace {

constinit thread_local tileops::contract::FailingHeap heap;

void* allocate(std::size_t bytes) {
  if (heap.left == 0) {
    heap.failed = true;
    if (!heap.sticky) heap.left = -1;
    throw std::bad_alloc();
  }
  if (heap.left > 0) --heap.left;
  void* data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

namespace tileops::contract {
FailingHeap& failing_heap() { return heap; }
}  // namespace tileops::contract

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }
