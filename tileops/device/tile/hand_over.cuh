// SPDX-License-Identifier: Apache-2.0
// Token rows on their way from one GEMM to the next, which begins while the first one ends.
#pragma once

#include "tileops/device/ptx/memory.cuh"
#include "tileops/device/ptx/threads.cuh"

namespace tileops::device {

/// A counter for each row tile, 0 outside a hand-over: those who write the tile's rows count one
/// each, then those who read them their k_tiles; the last reader leaves 0. One counter more is for
/// the row tiles beyond, which only metadata that makes no sense has: nobody waits for it.
struct AwaitedRows {
  uint32_t* counters;    // null: nothing is awaited
  int num_counters;      // of row tiles
  uint32_t num_writers;  // of a row tile
  uint32_t num_all;      // writers and k_tiles read, of a row tile

  __device__ __forceinline__ bool exist() const { return counters != nullptr; }

  /// A warp waits until all rows of the tile are written, of which `num_k_tiles` will be read.
  __device__ __forceinline__ void wait(int row_tile, int num_k_tiles) const {
    if (row_tile >= num_counters) {
      wait_for_previous_kernel();
    } else if (lane_idx() == 0) {
      uint32_t* counter = counters + row_tile;
      while (load_acquire(counter) < num_writers) {
      }
      if (atomicAdd(counter, num_k_tiles) + num_k_tiles == num_all) *counter = 0;
    }
    __syncwarp();
  }
};

}  // namespace tileops::device
