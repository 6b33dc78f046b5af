// SPDX-License-Identifier: Apache-2.0
// An allocator for objects that come and go with every call.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>

namespace tileops {

/// Up to kMax free blocks of a thread. Plain data, so that it can be asked after the thread's
/// destructors have run; it keeps none then.
struct FreeBlocks {
  static constexpr size_t kMax = 16;
  std::array<void*, kMax> blocks;
  size_t count;
  bool over;
};

/// Memory of single objects is used again by the thread that frees it: malloc takes blocks of more
/// than a KiB from its arena, under a lock.
template <class T>
struct RecyclingAllocator {
  using value_type = T;
  RecyclingAllocator() = default;
  template <class U>
  RecyclingAllocator(const RecyclingAllocator<U>&) {}  // NOLINT: an allocator's rebinding
  bool operator==(const RecyclingAllocator&) const = default;

  T* allocate(size_t count) {
    if (count == 1 && free_.count > 0) return static_cast<T*>(free_.blocks[--free_.count]);
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* block, size_t count) noexcept {
    if (count == 1 && keep(block)) return;
    std::allocator<T>().deallocate(block, count);
  }

 private:
  struct Freer {
    ~Freer() {
      while (free_.count > 0) {
        std::allocator<T>().deallocate(static_cast<T*>(free_.blocks[--free_.count]), 1);
      }
      free_.over = true;
    }
  };

  static bool keep(T* block) noexcept {
    if (free_.over || free_.count == FreeBlocks::kMax) return false;
    [[maybe_unused]] thread_local const Freer freer;
    free_.blocks[free_.count++] = block;
    return true;
  }

  static inline constinit thread_local FreeBlocks free_{};
};

}  // namespace tileops
