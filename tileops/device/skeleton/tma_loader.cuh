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
  if (k_tile != max(work.k_begin, work.k_end - kWantNextAhead)) return;
  if (P::kCtas == 1 || cluster_cta_rank() == 0) smem.work.wanted_.arrive();
}

/// Loads 128 weight rows x 64 values of a k_tile. Plain: a box of 128 rows of [E, N, K]. Gated: a
/// box of [E, N / 16, 2, 8, K], which puts 8 gate rows before their 8 up rows, so that a thread's
/// accumulators hold gate and up of the same feature; the map's strides say where they come from.
template <class P>
__device__ __forceinline__ void load_weights(const typename P::Params& p, GemmStorage<P>& smem,
                                             int stage, int k_tile, int feature_tile, int expert) {
  Mbarrier& full = smem.ring.full_[stage];
  const int k = k_tile * kTileK;
  if constexpr (P::kGated) {
    tma_load_5d(smem.weights[stage], &p.weights, full, k, 0, 0, feature_tile * (kTileFeatures / 16),
                expert);
  } else {
    tma_load_3d(smem.weights[stage], &p.weights, full, k, feature_tile * kTileFeatures, expert);
  }
}

/// Both operands by TMA. Token rows come in boxes of 64 and 16, only the live ones; the CTAs of a
/// cluster take the boxes in turn and multicast them.
template <class P>
struct TmaLoader {
  static constexpr int kWarps = 1;
  static constexpr int kArrivals = 1;
  static constexpr int kRegisters = 56;  // a thread, of the producer warpgroup
  static constexpr bool kWritesByThreads = false;
  static constexpr int kLargeBox = 64;
  static constexpr int kSmallBox = 16;
  /// Neighbours in memory that are asked for at once: a stream of weights gains 1 to 2 %. A cluster,
  /// which works on full tiles, would rather have each stage as soon as it is free.
  static constexpr int kTogether = P::kCtas == 1 ? 2 : 1;

  static __device__ __forceinline__ void run(const typename P::Params& p, GemmStorage<P>& smem) {
    const int cta_rank = P::kCtas == 1 ? 0 : static_cast<int>(cluster_cta_rank());
    RingPosition<P::kStages> at;
    typename WorkRing<P::kCtas>::Position work_at;
    bool starts_early = P::starts_early(p);
    for (Work work = smem.work.take(work_at); work.num_rows > 0; work = smem.work.take(work_at)) {
      const int feature_tile = work.feature_tile * P::kCtas + cta_rank;
      const int rows = (work.num_rows + kSmallBox - 1) / kSmallBox * kSmallBox;
      const uint32_t bytes = (kTileFeatures + rows) * kSwizzleBytes;
      int k_ahead = work.k_begin;  // the weights of earlier k_tiles are on their way
      if (starts_early) {
        k_ahead = min(work.k_end, work.k_begin + P::kStages);
        if (lane_idx() == 0) load_weights_ahead(p, smem, work, k_ahead, feature_tile, bytes);
        wait_for_previous_kernel();
        starts_early = false;
      }
      for (int k_tile = work.k_begin; k_tile < work.k_end;) {
        const int together = min(kTogether, work.k_end - k_tile);
        const RingPosition<P::kStages> first = at;
        for (int i = 0; i < together; ++i) {
          smem.ring.wait_empty(at);
          at.advance();
        }
        if (lane_idx() == 0) {
          RingPosition<P::kStages> to = first;
          for (int i = 0; i < together; ++i) {
            want_next<P>(smem, work, k_tile + i);
            if (k_tile + i >= k_ahead) {
              smem.ring.full_[to.stage].arrive_expect_tx(bytes);
              load_weights<P>(p, smem, to.stage, k_tile + i, feature_tile, work.expert);
            }
            load_tokens(p, smem, to.stage, k_tile + i, work.first_row, rows, cta_rank);
            to.advance();
          }
        }
        __syncwarp();
        k_tile += together;
      }
    }
  }

 private:
  /// The first piece's weights, which need not wait for the kernel before.
  static __device__ __forceinline__ void load_weights_ahead(const typename P::Params& p,
                                                            GemmStorage<P>& smem, const Work& work,
                                                            int k_end, int feature_tile,
                                                            uint32_t bytes) {
    RingPosition<P::kStages> at;
    for (int k_tile = work.k_begin; k_tile < k_end; ++k_tile) {
      smem.ring.full_[at.stage].arrive_expect_tx(bytes);
      load_weights<P>(p, smem, at.stage, k_tile, feature_tile, work.expert);
      at.advance();
    }
  }

  static __device__ __forceinline__ void load_tokens(const typename P::Params& p,
                                                     GemmStorage<P>& smem, int stage, int k_tile,
                                                     int first_row, int rows, int cta_rank) {
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
