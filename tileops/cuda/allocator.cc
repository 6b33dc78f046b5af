// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/allocator.h"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "tileops/core/log.h"
#include "tileops/cuda/capture.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/driver_check.h"
#include "tileops/cuda/kept_blocks.h"
#include "tileops/cuda/launch.h"

namespace tileops::cuda {
namespace {

class StreamOrderedAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, Stream stream) override {
    const bool captured = stream.handle != nullptr && is_capturing(stream);
    if (!captured) {
      if (void* data = kept_blocks().take(stream, bytes)) return data;
      if (bytes > KeptBlocks::kSmallBytes) give_back_large(stream);
    }
    void* data = allocate_from_pool(KeptBlocks::block_bytes(bytes), stream);
    if (captured) kept_blocks().mark_captured(data);
    return data;
  }

  void deallocate(void* data, size_t bytes, Stream stream) noexcept override {
    try {
      if (kept_blocks().keep(stream, data, bytes)) return;
      const ContextGuard context(stream.device);
      free(data, stream);
    } catch (const std::exception& error) {  // as the process ends, or after a fault
      if (log_on(Log::kExec)) log_line(Log::kExec, error.what());
    }
  }

  void trim(Device device) {
    const ContextGuard context(device);
    give_back_all(device);
    TILEOPS_DRIVER_CHECK(driver().mem_pool_trim_to(pool(device), 0), "trimming the pool of {}",
                         to_string(device));
  }

 private:
  void* allocate_from_pool(size_t bytes, Stream stream) {
    const ContextGuard context(stream.device);
    abi::DevicePtr data = 0;
    const auto ask = [&] {
      return driver().mem_alloc_from_pool_async(&data, bytes, pool(stream.device),
                                                static_cast<abi::Stream>(stream.handle));
    };
    abi::Result result = ask();
    if (result == abi::Result::kOutOfMemory) {
      const RelaxedCapture relaxed;
      for (const Stream& each : give_back_all(stream.device)) {
        driver().stream_synchronize(static_cast<abi::Stream>(each.handle));
      }
      result = ask();
    }
    if (result == abi::Result::kOutOfMemory) raise_out_of_memory(bytes, stream.device);
    TILEOPS_DRIVER_CHECK(result, "allocating {} bytes on {}", bytes, to_string(stream.device));
    return reinterpret_cast<void*>(data);
  }

  /// So that what the stream kept and the next block are not held at once.
  static void give_back_large(Stream stream) {
    const std::vector<void*> kept = kept_blocks().take_large(stream);
    if (kept.empty()) return;
    const ContextGuard context(stream.device);
    for (void* data : kept) free(data, stream);
  }

  /// Frees all that the device's streams kept, except for those that are being captured, which
  /// would take the call for a part of their graphs; returns the streams. The device's context is
  /// current.
  static std::vector<Stream> give_back_all(Device device) {
    std::vector<Stream> streams;
    for (const KeptBlocks::Kept& kept : kept_blocks().take_all(device)) {
      if (kept.stream.handle != nullptr && is_capturing(kept.stream)) {
        kept_blocks().keep(kept.stream, kept.data, kept.bytes);
        continue;
      }
      free(kept.data, kept.stream);
      if (streams.empty() || !(streams.back() == kept.stream)) streams.push_back(kept.stream);
    }
    return streams;
  }

  /// The stream's context is current.
  static void free(void* data, Stream stream) {
    TILEOPS_DRIVER_CHECK(driver().mem_free_async(reinterpret_cast<abi::DevicePtr>(data),
                                                 static_cast<abi::Stream>(stream.handle)),
                         "freeing memory of {}", to_string(stream.device));
  }

  [[noreturn]] static void raise_out_of_memory(size_t bytes, Device device) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    driver().mem_get_info(&free_bytes, &total_bytes);
    raise(ErrorKind::kOutOfMemory, "{}: {} bytes were asked for; {} of {} are free; {}",
          to_string(device), bytes, free_bytes, total_bytes, remedy(abi::Result::kOutOfMemory));
  }

  /// The device's pool, made at the first call; the device's context is current.
  abi::MemPool pool(Device device) {
    std::atomic<abi::MemPool>& slot = pools_.at(device.index);
    if (abi::MemPool known = slot.load(std::memory_order_acquire)) return known;
    std::lock_guard lock(mutex_);
    if (abi::MemPool known = slot.load(std::memory_order_acquire)) return known;
    const abi::MemPoolProps props{.location_id = ordinal_of(device)};
    abi::MemPool made = nullptr;
    TILEOPS_DRIVER_CHECK(driver().mem_pool_create(&made, &props), "making the memory pool of {}",
                         to_string(device));
    uint64_t keep_all = UINT64_MAX;
    TILEOPS_DRIVER_CHECK(
        driver().mem_pool_set_attribute(made, abi::kMemPoolReleaseThreshold, &keep_all),
        "setting the memory pool of {}", to_string(device));
    slot.store(made, std::memory_order_release);
    return made;
  }

  std::mutex mutex_;  // guards the making of pools
  std::array<std::atomic<abi::MemPool>, kMaxDevices> pools_{};
};

StreamOrderedAllocator& instance() {
  static auto& allocator = *new StreamOrderedAllocator;
  return allocator;
}

}  // namespace

Allocator& stream_ordered_allocator() { return instance(); }

void release_cached_memory(Device device) { instance().trim(device); }

}  // namespace tileops::cuda
