// SPDX-License-Identifier: Apache-2.0
// Who runs: lanes, warps, named barriers, clusters, register budgets, dependent launches.
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::device {

constexpr int kWarpThreads = 32;
constexpr int kWarpgroupThreads = 128;

__device__ __forceinline__ int lane_idx() { return static_cast<int>(threadIdx.x) % kWarpThreads; }

/// Warp index within the CTA, made uniform so that branches on it are uniform branches.
__device__ __forceinline__ int warp_idx() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
}

/// Orders the threads that use hardware barrier `barrier` (1..15); all `threads` must arrive.
__device__ __forceinline__ void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ uint32_t cluster_cta_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Programmatic dependent launch: waits until the kernels before this one have finished and their
/// writes are visible. Does nothing when the launch did not ask for it.
__device__ __forceinline__ void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// Lets the next kernel's CTAs start; that kernel still waits for this one's end where it reads.
__device__ __forceinline__ void allow_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace tileops::device
