// SPDX-License-Identifier: Apache-2.0
// mbarrier: a counter in shared memory on which arrivals and asynchronous bytes complete a phase.
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::device {

/// Address of `pointer` in the CTA's shared window, as PTX wants it.
__device__ __forceinline__ uint32_t smem_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

struct Mbarrier {
  uint64_t word;

  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(this)), "r"(arrivals)
                 : "memory");
  }

  /// Waits until the phase of parity `phase` has completed.
  __device__ __forceinline__ void wait(uint32_t phase) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}" ::"r"(smem_address(this)),
        "r"(phase)
        : "memory");
  }

  /// As wait, and orders reads behind it after what other CTAs of the cluster wrote before.
  __device__ __forceinline__ void wait_cluster(uint32_t phase) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}" ::"r"(smem_address(this)),
        "r"(phase)
        : "memory");
  }

  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(this)) : "memory");
  }

  /// Arrives at the same barrier of CTA `cta_rank` of the cluster. Releases nothing beyond the CTA:
  /// with .release.cluster each arrival would flush to L2, about a microsecond.
  __device__ __forceinline__ void arrive_at(uint32_t cta_rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(smem_address(this)),
        "r"(cta_rank)
        : "memory");
  }

  /// As arrive_at, and releases this thread's earlier writes to the cluster: slow, see above.
  __device__ __forceinline__ void arrive_release_at(uint32_t cta_rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(smem_address(this)),
        "r"(cta_rank)
        : "memory");
  }

  /// Arrives, and keeps the phase open until `tx_bytes` more bytes have landed.
  __device__ __forceinline__ void arrive_expect_tx(uint32_t tx_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(this)),
                 "r"(tx_bytes)
                 : "memory");
  }
};

/// Makes initialised barriers visible to the copy engine and to the other CTAs of the cluster.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Orders this thread's ordinary shared-memory stores before later reads by wgmma or TMA.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace tileops::device
