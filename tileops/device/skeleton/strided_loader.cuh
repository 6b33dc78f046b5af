// SPDX-License-Identifier: Apache-2.0
// Loader of the weights-on-M skeleton for operands of any strides, alignment and size: the one that
// always serves.
#pragma once

#include "tileops/device/skeleton/tma_loader.cuh"

namespace tileops::device {

/// Warps 1 to 3 copy element by element into the swizzle that TMA would write; zeros stand for what
/// lies beyond K or N. Token rows may be gathered: p.row_index, or null.
template <class P>
struct StridedLoader {
  static constexpr int kThreads = 96;
  static constexpr int kWarps = 3;
  static constexpr int kArrivals = kThreads;
  static constexpr bool kWritesByThreads = true;
  static constexpr int kChunks = kSwizzleBytes / 16;
  static_assert(P::kCtas == 1, "StridedLoader: rows are not shared by a cluster");

  static __device__ __forceinline__ void run(const typename P::Params& p, GemmStorage<P>& smem) {
    RingPosition<P::kStages> at;
    typename WorkRing<1>::Position work_at;
    const int thread = static_cast<int>(threadIdx.x) - kWarpThreads;
    for (Work work = smem.work.take(work_at); work.num_rows > 0; work = smem.work.take(work_at)) {
      for (int k_tile = work.k_begin; k_tile < work.k_end; ++k_tile) {
        smem.ring.wait_empty(at);
        if (thread == 0) want_next<P>(smem, work, k_tile);
        for (int i = thread; i < kTileFeatures * kChunks; i += kThreads) {
          const int row = i / kChunks;
          const int64_t weight_row = P::weight_row(p, work.feature_tile, row);
          const uint16_t* source = nullptr;
          if (weight_row >= 0) {
            source = static_cast<const uint16_t*>(p.b) + work.expert * p.b_expert_stride +
                     weight_row * p.b_row_stride;
          }
          copy_chunk(smem.weights[at.stage], row, i % kChunks, source, p.b_k_stride, k_tile, p.k);
        }
        for (int i = thread; i < work.num_rows * kChunks; i += kThreads) {
          const int row = i / kChunks;
          copy_chunk(smem.tokens[at.stage], row, i % kChunks, token_row(p, work, row), p.a_k_stride,
                     k_tile, p.k);
        }
        fence_async_proxy();
        smem.ring.full_[at.stage].arrive();
        at.advance();
      }
    }
  }

 private:
  static __device__ __forceinline__ const uint16_t* token_row(const typename P::Params& p,
                                                              const Work& work, int row) {
    int64_t source = work.first_row + row;
    if (p.row_index != nullptr) {
      const int found = p.row_index[source];
      source = found >= 0 && found < p.num_source_rows ? found : 0;
    }
    return static_cast<const uint16_t*>(p.a) + work.expert * p.a_expert_stride +
           source * p.a_row_stride;
  }

  /// Copies 8 values of one row; `source` null: zeros.
  static __device__ __forceinline__ void copy_chunk(uint8_t* tile, int row, int chunk,
                                                    const uint16_t* source, int64_t k_stride,
                                                    int k_tile, int k_end) {
    const int k = k_tile * kTileK + chunk * 8;
    Vector16 packed;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t halves[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = k + 2 * pair + j;
        halves[j] = source != nullptr && at < k_end ? source[at * k_stride] : 0u;
      }
      packed.word[pair] = halves[0] | halves[1] << 16;
    }
    *reinterpret_cast<Vector16*>(tile + row * kSwizzleBytes + ((chunk ^ (row & 7)) << 4)) = packed;
  }
};

}  // namespace tileops::device
