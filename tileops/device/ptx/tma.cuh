// SPDX-License-Identifier: Apache-2.0
// TMA: tensor copies between global and shared memory. Loads complete on an mbarrier, stores in
// groups of the thread that issued them.
#pragma once

#include "tileops/device/ptx/mbarrier.cuh"

namespace tileops::device {

__device__ __forceinline__ void prefetch_tensor_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load_3d(void* smem, const void* map, Mbarrier& full, int c0,
                                            int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(&full)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

__device__ __forceinline__ void tma_load_5d(void* smem, const void* map, Mbarrier& full, int c0,
                                            int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(smem_address(smem)),
      "l"(map), "r"(smem_address(&full)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

/// Loads one box; with `kCtas` > 1 it lands at the same offset in every CTA of the cluster, and
/// completes on the same barrier of each.
template <int kCtas>
__device__ __forceinline__ void tma_load_2d(void* smem, const void* map, Mbarrier& full, int c0,
                                            int c1) {
  if constexpr (kCtas == 1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];" ::"r"(smem_address(smem)),
        "l"(map), "r"(smem_address(&full)), "r"(c0), "r"(c1)
        : "memory");
  } else {
    constexpr uint16_t kEveryCta = (1u << kCtas) - 1;
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(smem_address(smem)),
        "l"(map), "r"(smem_address(&full)), "r"(c0), "r"(c1), "h"(kEveryCta)
        : "memory");
  }
}

/// Copies `bytes`, a multiple of 16, between addresses that are multiples of 16.
__device__ __forceinline__ void bulk_load(void* smem, const void* source, uint32_t bytes,
                                          Mbarrier& full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(smem_address(smem)),
      "l"(source), "r"(bytes), "r"(smem_address(&full))
      : "memory");
}

/// Orders what other threads wrote to global memory, and this one has acquired, before its later
/// copies by the copy engine.
__device__ __forceinline__ void fence_async_proxy_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Stores one box; what lies outside the tensor is left out.
__device__ __forceinline__ void tma_store_2d(const void* map, uint32_t smem, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(smem), "r"(c0), "r"(c1)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until all but the last `kPending` groups have read their shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// Waits until all of this thread's stores are written.
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace tileops::device
