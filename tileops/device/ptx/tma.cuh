// SPDX-License-Identifier: Apache-2.0
// TMA: tensor copies from global to shared memory that complete on an mbarrier.
#pragma once

#include "tileops/device/ptx/mbarrier.cuh"

namespace tileops::device {

/// L2 eviction priorities, in the encoding that `createpolicy` yields.
enum class CacheHint : uint64_t {
  kNormal = 0x1000000000000000ull,
  kEvictFirst = 0x12F0000000000000ull,  // read once: weights of an expert with one token tile
  kEvictLast = 0x14F0000000000000ull,   // read again soon: token rows
};

__device__ __forceinline__ void prefetch_tensor_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load_3d(void* smem, const void* map, Mbarrier& full, int c0,
                                            int c1, int c2, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(&full)), "r"(c0), "r"(c1), "r"(c2),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}

__device__ __forceinline__ void tma_load_5d(void* smem, const void* map, Mbarrier& full, int c0,
                                            int c1, int c2, int c3, int c4, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(&full)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
      "l"(static_cast<uint64_t>(hint))
      : "memory");
}

/// Loads one box; with `kCtas` > 1 it lands at the same offset in every CTA of the cluster, and
/// completes on the same barrier of each.
template <int kCtas>
__device__ __forceinline__ void tma_load_2d(void* smem, const void* map, Mbarrier& full, int c0,
                                            int c1, CacheHint hint) {
  if constexpr (kCtas == 1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(smem_address(smem)),
        "l"(map), "r"(smem_address(&full)), "r"(c0), "r"(c1), "l"(static_cast<uint64_t>(hint))
        : "memory");
  } else {
    constexpr uint16_t kEveryCta = (1u << kCtas) - 1;
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(
            smem_address(smem)),
        "l"(map), "r"(smem_address(&full)), "r"(c0), "r"(c1), "h"(kEveryCta),
        "l"(static_cast<uint64_t>(hint))
        : "memory");
  }
}

}  // namespace tileops::device
