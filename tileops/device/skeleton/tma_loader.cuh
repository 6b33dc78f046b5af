// SPDX-License-Identifier: Apache-2.0
// Loader of the weights-on-M skeleton for operands that TMA can read.
#pragma once

#include "tileops/device/skeleton/weights_on_m.cuh"

namespace tileops::device {

/// So many k_tiles before the end of a piece of work the next is fetched, which takes 1 to 3 us.
constexpr int kWantNextAhead = 16;

/// One thread: tells the scheduler, at the right k_tile of a piece, that the next is wanted.
template <class P>
__device__ __forceinline__ void want_next(GemmStorage<P>& smem, const Work& work, int k_tile) {
  if (k_tile == max(work.k_begin, work.k_end - kWantNextAhead)) smem.work.wanted_.arrive();
}

/// Loads a tile's weight rows of a k_tile, 128 x 64 values at a time. Plain: a box of 128 rows of
/// [E, N, K]. Gated: a box of [E, N / 16, 2, 8, K], which puts 8 gate rows before their 8 up rows,
/// so that a thread's accumulators hold gate and up of the same feature; the map's strides say where
/// they come from.
template <class P>
__device__ __forceinline__ void load_weights(const typename P::Params& p, GemmStorage<P>& smem,
                                             int stage, int k_tile, int feature_tile, int expert) {
  constexpr int kBoxFeatures = 128;
  Mbarrier& full = smem.ring.full_[stage];
  const int k = k_tile * kTileK;
#pragma unroll
  for (int row = 0; row < P::kTileFeatures; row += kBoxFeatures) {
    uint8_t* to = smem.weights[stage] + row * kSwizzleBytes;
    const int feature = feature_tile * P::kTileFeatures + row;
    if constexpr (P::kGated) {
      tma_load_5d(to, &p.weights, full, k, 0, 0, feature / 16, expert);
    } else {
      tma_load_3d(to, &p.weights, full, k, feature, expert);
    }
  }
}

/// Both operands by TMA. Token rows come in boxes of 64 and 16, only the live ones, each asked for
/// by a lane of its own; the CTAs of a cluster take the boxes in turn and multicast them.
template <class P>
struct TmaLoader {
  static constexpr int kWarps = 1;
  static constexpr int kArrivals = 1;
  static constexpr int kRegisters = 40;  // a thread, of the producer warpgroup
  static constexpr bool kWritesByThreads = false;
  static constexpr int kLargeBox = 64;
  static constexpr int kSmallBox = kRowStep;
  /// Neighbours in memory that are asked for at once: a stream of weights gains 1 to 2 %. A cluster,
  /// which works on full tiles, would rather have each stage as soon as it is free.
  static constexpr int kTogether = P::kCtas == 1 ? 2 : 1;

  static __device__ __forceinline__ void run(const typename P::Params& p, GemmStorage<P>& smem) {
    const int cta_rank = P::kCtas == 1 ? 0 : static_cast<int>(cluster_cta_rank());
    RingPosition<P::kStages> at;
    typename WorkRing<P::kCtas>::Position work_at;
    const bool awaits_rows = P::awaited_rows(p).exist();
    while (true) {
      // Before the piece is taken, so that the gate can be one round ahead at most.
      if (awaits_rows) smem.rows_ready[work_at.stage].wait(work_at.phase);
      const Work work = smem.work.take(work_at);
      if (work.num_rows == 0) break;
      const int feature_tile = work.feature_tile * P::kCtas + cta_rank;
      const int rows = (work.num_rows + kSmallBox - 1) / kSmallBox * kSmallBox;
      const uint32_t bytes = (P::kTileFeatures + rows) * kSwizzleBytes;
      const Box box = box_of_lane(p, rows, cta_rank);
      if (awaits_rows) fence_async_proxy_global();
      for (int k_tile = work.k_begin; k_tile < work.k_end;) {
        const int together = min(kTogether, work.k_end - k_tile);
        const RingPosition<P::kStages> first = at;
        for (int i = 0; i < together; ++i) {
          smem.ring.wait_empty(at);
          at.advance();
        }
        RingPosition<P::kStages> to = first;
        for (int i = 0; i < together; ++i, ++k_tile) {
          if (lane_idx() == 0) {
            if (cta_rank == 0) want_next<P>(smem, work, k_tile);
            smem.ring.full_[to.stage].arrive_expect_tx(bytes);
            load_weights<P>(p, smem, to.stage, k_tile, feature_tile, work.expert);
          }
          if (box.is_mine) {
            tma_load_2d<P::kCtas>(smem.tokens[to.stage] + box.row * kSwizzleBytes, box.map,
                                  smem.ring.full_[to.stage], k_tile * kTileK,
                                  work.first_row + box.row);
          }
          __syncwarp();
          to.advance();
        }
      }
    }
  }

 private:
  /// Token rows that this lane asks for at each k_tile of a piece, if any.
  struct Box {
    const void* map;
    int row;  // of the tile
    bool is_mine;
  };
  static __device__ __forceinline__ Box box_of_lane(const typename P::Params& p, int rows,
                                                    int cta_rank) {
    const int lane = lane_idx();
    const int num_large = rows / kLargeBox;
    const bool large = lane < num_large;
    const int row =
        large ? lane * kLargeBox : num_large * kLargeBox + (lane - num_large) * kSmallBox;
    return {large ? &p.tokens_large : &p.tokens_small, row,
            row < rows && lane % P::kCtas == cta_rank};
  }
};

}  // namespace tileops::device
