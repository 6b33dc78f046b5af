// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/allocator.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "tileops/core/check.h"

namespace tileops {
namespace {

constexpr size_t kCpuAlignment = 64, kHugePage = 2 << 20;
constexpr size_t kHugeFrom = 8 << 20;  // bytes of a tensor that is read at the memory's speed

class CpuAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, Stream) override {
    const size_t alignment = bytes >= kHugeFrom ? kHugePage : kCpuAlignment;
    const size_t whole_lines = (bytes + kCpuAlignment - 1) & ~(kCpuAlignment - 1);
    void* data = nullptr;
    if (bytes > SIZE_MAX - alignment || posix_memalign(&data, alignment, whole_lines) != 0) {
      data = nullptr;
    }
    // A wish: small pages work too, but each costs a translation every 4 KiB.
    if (data != nullptr && alignment == kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
    TILEOPS_CHECK(ErrorKind::kOutOfMemory, data != nullptr,
                  "cpu: {} bytes were asked for, and there is not so much memory", bytes);
    return data;
  }
  void deallocate(void* data, size_t, Stream) noexcept override { std::free(data); }
};

/// Never destroyed: tensors of other globals may outlive this file's.
CpuAllocator& cpu_allocator() {
  static CpuAllocator& allocator = *new CpuAllocator;
  return allocator;
}

constinit std::array<std::atomic<Allocator*>, 3> allocators{};

std::atomic<Allocator*>& slot_of(DeviceType type) {
  TILEOPS_CHECK(ErrorKind::kDevice, type != DeviceType::kMeta,
                "meta tensors have no storage, so the meta device has no allocator");
  return allocators.at(static_cast<size_t>(type));
}

constinit thread_local const AllocatorGuard* innermost_allocator = nullptr;

}  // namespace

Allocator& allocator_for(DeviceType type) {
  Allocator* allocator = slot_of(type).load(std::memory_order_acquire);
  if (allocator != nullptr) return *allocator;
  TILEOPS_CHECK(ErrorKind::kDevice, type == DeviceType::kCPU,
                "{}: no allocator is set, because no tensor on {} was used yet",
                device_type_name(type), device_type_name(type));
  return cpu_allocator();
}

Allocator* set_allocator(DeviceType type, Allocator* allocator) {
  return slot_of(type).exchange(allocator, std::memory_order_acq_rel);
}

AllocatorGuard::AllocatorGuard(DeviceType type, std::shared_ptr<Allocator> allocator)
    : type_(type), allocator_(std::move(allocator)), outer_(innermost_allocator) {
  innermost_allocator = this;
}

AllocatorGuard::~AllocatorGuard() { innermost_allocator = outer_; }

std::shared_ptr<Allocator> AllocatorGuard::current(DeviceType type) {
  for (const AllocatorGuard* guard = innermost_allocator; guard != nullptr; guard = guard->outer_) {
    if (guard->type_ == type) return guard->allocator_;
  }
  return nullptr;
}

}  // namespace tileops
