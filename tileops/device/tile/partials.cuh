// SPDX-License-Identifier: Apache-2.0
// Sums of a tile that several CTAs split along K, handed over through global memory.
#pragma once

#include "tileops/device/ptx/memory.cuh"
#include "tileops/device/ptx/threads.cuh"

namespace tileops::device {

/// One slot per warpgroup of each worker: kValues floats a thread, and a flag that is 0 outside a
/// hand-over. A worker has at most one slot in use; the order of additions is fixed.
template <int kValues>
struct PartialSums {
  Vector16* values;  // [slots, kValues / 4, 128]
  uint32_t* flags;   // [slots]

  /// Writes the first `count` values of each thread of the warpgroup, rounded up to 4.
  __device__ __forceinline__ void give(int slot, const float (&accum)[kValues], int count,
                                       int barrier) const {
    Vector16* at = thread_values(slot);
#pragma unroll
    for (int i = 0; i < kValues; i += 4) {
      if (i < count) {
        at[i / 4 * kWarpgroupThreads] = {{__float_as_uint(accum[i]), __float_as_uint(accum[i + 1]),
                                          __float_as_uint(accum[i + 2]),
                                          __float_as_uint(accum[i + 3])}};
      }
    }
    named_barrier_sync(barrier, kWarpgroupThreads);
    if (threadIdx.x % kWarpgroupThreads == 0) {
      __threadfence();
      store_release(flags + slot, 1);
    }
  }

  /// Waits for the slot's sums, adds them and frees the slot.
  __device__ __forceinline__ void add(int slot, float (&accum)[kValues], int count,
                                      int barrier) const {
    if (threadIdx.x % kWarpgroupThreads == 0) {
      while (load_acquire(flags + slot) == 0) {
      }
    }
    named_barrier_sync(barrier, kWarpgroupThreads);
    const Vector16* at = thread_values(slot);
#pragma unroll
    for (int i = 0; i < kValues; i += 4) {
      if (i < count) {
        const Vector16 sums = load_l2_16(at + i / 4 * kWarpgroupThreads);
#pragma unroll
        for (int j = 0; j < 4; ++j) accum[i + j] += __uint_as_float(sums.word[j]);
      }
    }
    named_barrier_sync(barrier, kWarpgroupThreads);
    if (threadIdx.x % kWarpgroupThreads == 0) store_release(flags + slot, 0);
  }

 private:
  __device__ __forceinline__ Vector16* thread_values(int slot) const {
    return opaque(values + int64_t{slot} * (kValues / 4) * kWarpgroupThreads +
                  threadIdx.x % kWarpgroupThreads);
  }
};

}  // namespace tileops::device
