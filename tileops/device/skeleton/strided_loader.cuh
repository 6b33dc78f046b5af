// SPDX-License-Identifier: Apache-2.0
// Loader of the weights-on-M skeleton for operands of any strides, alignment and size: the one that
// always serves.
#pragma once

#include "tileops/device/skeleton/tma_loader.cuh"

namespace tileops::device {

/// Warps 1 to 3 copy through registers into the swizzle that TMA would write; zeros stand for what
/// lies beyond K or N. Operands that allow it are read 16 bytes at a time, others by element.
template <class P>
struct StridedLoader {
  static constexpr int kThreads = 96;
  static constexpr int kWarps = 3;
  static constexpr int kArrivals = kThreads;
  static constexpr int kRegisters = 88;
  static constexpr bool kWritesByThreads = true;
  static constexpr int kChunks = kSwizzleBytes / 16;
  static_assert(P::kCtas == 1, "StridedLoader: rows are not shared by a cluster");

  static __device__ __forceinline__ void run(const typename P::Params& p, GemmStorage<P>& smem) {
    RingPosition<P::kStages> at;
    typename WorkRing<1>::Position work_at;
    const bool vector_b =
        p.k % 8 == 0 && p.b_k_stride == 1 && is_aligned(p.b, p.b_row_stride, p.b_expert_stride);
    const bool vector_a =
        p.k % 8 == 0 && p.a_k_stride == 1 && is_aligned(p.a, p.a_row_stride, p.a_expert_stride);
    for (Work work = smem.work.take(work_at); work.num_rows > 0; work = smem.work.take(work_at)) {
      const auto weight_row = [&](int row) { return row_of_b(p, work, row); };
      const auto token_row = [&](int row) { return row_of_a(p, work, row); };
      for (int k_tile = work.k_begin; k_tile < work.k_end; ++k_tile) {
        smem.ring.wait_empty(at);
        if (threadIdx.x == kWarpThreads) want_next<P>(smem, work, k_tile);
        copy(vector_b, smem.weights[at.stage], P::kTileFeatures, weight_row, p.b_k_stride, k_tile,
             p.k);
        copy(vector_a, smem.tokens[at.stage], work.num_rows, token_row, p.a_k_stride, k_tile, p.k);
        fence_async_proxy();
        smem.ring.full_[at.stage].arrive();
        at.advance();
      }
    }
  }

 private:
  static __device__ __forceinline__ bool is_aligned(const void* base, int64_t stride0,
                                                    int64_t stride1) {
    return reinterpret_cast<uint64_t>(base) % 16 == 0 && stride0 % 8 == 0 && stride1 % 8 == 0;
  }

  static __device__ __forceinline__ const uint16_t* row_of_b(const typename P::Params& p,
                                                             const Work& work, int row) {
    const int64_t weight_row = P::weight_row(p, work.feature_tile, row);
    if (weight_row < 0) return nullptr;
    return static_cast<const uint16_t*>(p.b) + work.expert * p.b_expert_stride +
           weight_row * p.b_row_stride;
  }

  static __device__ __forceinline__ const uint16_t* row_of_a(const typename P::Params& p,
                                                             const Work& work, int row) {
    return static_cast<const uint16_t*>(p.a) + work.expert * p.a_expert_stride +
           (int64_t{work.first_row} + row) * p.a_row_stride;
  }

  template <class RowOf>
  static __device__ __forceinline__ void copy(bool by_vectors, uint8_t* tile, int num_rows,
                                              const RowOf& row_of, int64_t k_stride, int k_tile,
                                              int k_end) {
    if (by_vectors) {
      copy_batches<true, 8>(tile, num_rows, row_of, k_stride, k_tile, k_end);
    } else {
      copy_batches<false, 2>(tile, num_rows, row_of, k_stride, k_tile, k_end);
    }
  }

  /// Loads kBatch chunks of 8 values before it stores the first: latency, not bytes, is the cost.
  template <bool kVectors, int kBatch, class RowOf>
  static __device__ __forceinline__ void copy_batches(uint8_t* tile, int num_rows,
                                                      const RowOf& row_of, int64_t k_stride,
                                                      int k_tile, int k_end) {
    const int thread = static_cast<int>(threadIdx.x) - kWarpThreads;
    const int num_chunks = num_rows * kChunks;
#pragma unroll 1
    for (int first = thread; first < num_chunks; first += kBatch * kThreads) {
      Vector16 values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int index = first + i * kThreads;
        const uint16_t* row = index < num_chunks ? row_of(index / kChunks) : nullptr;
        const int k = k_tile * kTileK + index % kChunks * 8;
        values[i] = load_chunk<kVectors>(row, k, k_stride, k_end);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int index = first + i * kThreads;
        const int row = index / kChunks;
        const int place = row * kSwizzleBytes + ((index % kChunks ^ (row & 7)) << 4);
        if (index < num_chunks) *reinterpret_cast<Vector16*>(tile + place) = values[i];
      }
    }
  }

  /// Values k .. k + 7 of a row; a null row is zeros.
  template <bool kVectors>
  static __device__ __forceinline__ Vector16 load_chunk(const uint16_t* row, int k,
                                                        int64_t k_stride, int k_end) {
    Vector16 chunk = {};
    if constexpr (kVectors) {
      if (row != nullptr && k < k_end) chunk = *reinterpret_cast<const Vector16*>(row + k);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        uint32_t value = 0;
        if (row != nullptr && k + i < k_end) value = row[(k + i) * k_stride];
        chunk.word[i / 2] |= value << (i % 2 * 16);
      }
    }
    return chunk;
  }
};

}  // namespace tileops::device
