// SPDX-License-Identifier: Apache-2.0
// Loader of the weights-on-M skeleton that gathers token rows by an index: no permuted copy of them
// is ever made. Weights come by TMA.
#pragma once

#include "tileops/device/skeleton/tma_loader.cuh"

namespace tileops::device {

/// Warp 1 loads weights, warps 2 and 3 copy token rows by cp.async, 16 bytes a thread: row r of the
/// work is row p.row_index[first_row + r] of a matrix at p.a with p.a_row_stride. An index outside
/// [0, p.num_source_rows) reads row 0. K must be a multiple of 8, rows aligned to 16 bytes.
/// As fast as TMA up to about 32 rows an expert, half as fast at 128: then permute first.
template <class P>
struct GatherLoader {
  static constexpr int kGatherThreads = 64;
  static constexpr int kWarps = 3;
  static constexpr int kArrivals = 1 + kGatherThreads;
  static constexpr int kRegisters = 56;
  static constexpr bool kWritesByThreads = true;
  static constexpr int kChunks = kSwizzleBytes / 16;
  static constexpr int kRowsAtOnce = kGatherThreads / kChunks;
  static_assert(P::kCtas == 1, "GatherLoader: gathered rows are not shared by a cluster");

  static __device__ __forceinline__ void run(const typename P::Params& p, GemmStorage<P>& smem) {
    RingPosition<P::kStages> at;
    typename WorkRing<1>::Position work_at;
    const bool loads_weights = warp_idx() == 1;
    for (Work work = smem.work.take(work_at); work.num_rows > 0; work = smem.work.take(work_at)) {
      for (int k_tile = work.k_begin; k_tile < work.k_end; ++k_tile) {
        smem.ring.wait_empty(at);
        if (!loads_weights) {
          gather(p, smem.tokens[at.stage], work, k_tile);
          smem.ring.full_[at.stage].arrive_after_cp_async();
        } else if (lane_idx() == 0) {
          want_next<P>(smem, work, k_tile);
          smem.ring.full_[at.stage].arrive_expect_tx(P::kTileFeatures * kSwizzleBytes);
          load_weights<P>(p, smem, at.stage, k_tile, work.feature_tile, work.expert);
        }
        __syncwarp();
        at.advance();
      }
    }
  }

 private:
  static __device__ __forceinline__ void gather(const typename P::Params& p, uint8_t* tokens,
                                                const Work& work, int k_tile) {
    const int thread = static_cast<int>(threadIdx.x) % kGatherThreads;
    const int chunk = thread % kChunks;
    const int k = k_tile * kTileK + chunk * 8;
    const int source_bytes = k < p.k ? 16 : 0;  // beyond K: zeros
    const auto* column = static_cast<const uint16_t*>(p.a) + (k < p.k ? k : 0);
    const int32_t* index = p.row_index + work.first_row;
#pragma unroll 4
    for (int row = thread / kChunks; row < work.num_rows; row += kRowsAtOnce) {
      const int found = index[row];
      const int source = found >= 0 && found < p.num_source_rows ? found : 0;
      cp_async_16(tokens + row * kSwizzleBytes + ((chunk ^ (row & 7)) << 4),
                  column + source * p.a_row_stride, source_bytes);
    }
  }
};

}  // namespace tileops::device
