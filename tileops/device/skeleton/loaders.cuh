// SPDX-License-Identifier: Apache-2.0
// Loaders of the weights-on-M skeleton: who fills a stage, and how.
#pragma once

#include "tileops/device/skeleton/weights_on_m.cuh"

namespace tileops::device {

/// Loads this CTA's weight tile of one k_tile. Plain: a box of 128 rows of [E, N, K]. Gated: a box
/// of [E, N / 16, 2, 8, K], which puts 8 gate rows before their 8 up rows, so that a thread's
/// accumulators hold gate and up of the same feature; the map's strides say where they come from.
template <class P>
__device__ __forceinline__ void load_weights(const typename P::Params& p, GemmStorage<P>& smem,
                                             int stage, const Work& work, int feature_tile,
                                             int k_tile) {
  Mbarrier& full = smem.ring.full_[stage];
  if constexpr (P::kGated) {
    tma_load_5d(smem.weights[stage], &p.weights, full, k_tile * kTileK, 0, 0,
                feature_tile * (kTileFeatures / 16), work.expert);
  } else {
    tma_load_3d(smem.weights[stage], &p.weights, full, k_tile * kTileK,
                feature_tile * kTileFeatures, work.expert);
  }
}

/// Both operands by TMA. Token rows come in boxes of 64 and 16, only the live ones; the CTAs of a
/// cluster take the boxes in turn and multicast them.
template <class P>
struct TmaLoader {
  static constexpr int kWarps = 1;
  static constexpr int kArrivals = 1;
  static constexpr int kWantNextAhead = 4;  // k_tiles before the end: hides fetching the next piece
  static constexpr int kLargeBox = 64;
  static constexpr int kSmallBox = 16;

  static __device__ __forceinline__ void run(const typename P::Params& p, GemmStorage<P>& smem) {
    const int cta_rank = P::kCtas == 1 ? 0 : static_cast<int>(cluster_cta_rank());
    RingPosition<P::kStages> at;
    typename WorkRing<P::kCtas>::Position work_at;
    for (Work work = smem.work.take(work_at); work.num_rows > 0; work = smem.work.take(work_at)) {
      const int feature_tile = work.feature_tile * P::kCtas + cta_rank;
      const int rows = (work.num_rows + kSmallBox - 1) / kSmallBox * kSmallBox;
      const int want_next_at = max(work.k_begin, work.k_end - kWantNextAhead);
      for (int k_tile = work.k_begin; k_tile < work.k_end; ++k_tile) {
        smem.ring.wait_empty(at);
        if (lane_idx() == 0) {
          if (cta_rank == 0 && k_tile == want_next_at) smem.work.wanted_.arrive();
          smem.ring.full_[at.stage].arrive_expect_tx((kTileFeatures + rows) * kSwizzleBytes);
#ifdef EXP_ROT
          const int len = work.k_end - work.k_begin;
          const int k_at = work.k_begin + (k_tile - work.k_begin + (work.expert * 5 + work.feature_tile * 3)) % len;
#else
          const int k_at = k_tile;
#endif
          load_weights<P>(p, smem, at.stage, work, feature_tile, k_at);
          load_tokens(p, smem, at.stage, work.first_row, rows, k_at, cta_rank);
        }
        __syncwarp();
        at.advance();
      }
    }
  }

 private:
  static __device__ __forceinline__ void load_tokens(const typename P::Params& p,
                                                     GemmStorage<P>& smem, int stage, int first_row,
                                                     int rows, int k_tile, int cta_rank) {
    int turn = 0;
    for (int row = 0; row < rows; ++turn) {
      const bool large = rows - row >= kLargeBox;
      if (turn % P::kCtas == cta_rank) {
        tma_load_2d<P::kCtas>(smem.tokens[stage] + row * kSwizzleBytes,
                              large ? &p.tokens_large : &p.tokens_small, smem.ring.full_[stage],
                              k_tile * kTileK, first_row + row);
      }
      row += large ? kLargeBox : kSmallBox;
    }
  }
};

}  // namespace tileops::device
