// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/allocator.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "tileops/core/check.h"

namespace tileops {
namespace {

constexpr size_t kCpuAlignment = 64;

class CpuAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, Stream) override {
    void* data = nullptr;
    if (bytes <= SIZE_MAX - kCpuAlignment) {
      data = std::aligned_alloc(kCpuAlignment, (bytes + kCpuAlignment - 1) & ~(kCpuAlignment - 1));
    }
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

}  // namespace tileops
