// SPDX-License-Identifier: Apache-2.0
// Epilogue of a GEMM whose accumulators hold weight rows x token rows: bias, gated activation and
// cast in registers, a transposed copy in shared memory, then whole rows of the output.
#pragma once

#include "tileops/device/epilogue/activation.cuh"
#include "tileops/device/ptx/convert.cuh"
#include "tileops/device/ptx/memory.cuh"
#include "tileops/device/ptx/threads.cuh"
#include "tileops/device/ptx/tma.cuh"

namespace tileops::device {

/// No activation: each weight row gives an output feature.
struct Identity {};

template <class Activation>
constexpr bool kIsGated = true;
template <>
constexpr bool kIsGated<Identity> = false;

/// Token rows that a warpgroup stages at once: rows of one output type, swizzled by 16 bytes so
/// that neither the transposed writes nor the reads of whole rows meet in a bank. 16-bit rows lie
/// as in TMA's 128-byte (gated: 64-byte) swizzle.
template <class Out, int kFeatures, int kBytesOf>
struct StagedRows {
  static constexpr int kBytes = kBytesOf;
  static constexpr int kRowBytes = kFeatures * static_cast<int>(sizeof(Out));
  static constexpr int kRows = kBytes / kRowBytes;
  static constexpr int kChunks = kRowBytes / 16;

  /// Offset of 16-byte chunk `chunk` of row `row`.
  static __device__ __forceinline__ int offset(int row, int chunk) {
    int shift = 0;
    if constexpr (sizeof(Out) == 4) {
      shift = ((row >> 1) & 3) << 1;  // written as floats by lanes that hold every second row
    } else if constexpr (kChunks == 8) {
      shift = row & 7;
    } else {
      static_assert(kChunks == 4, "StagedRows: 16-bit rows are 64 or 128 bytes");
      shift = (row >> 1) & 3;
    }
    return row * kRowBytes + ((chunk ^ shift) << 4);
  }
};

struct OutputTile {
  void* row0;              // first output row of the tile, at feature 0
  int64_t row_stride;      // in elements
  int64_t feature_stride;  // 1 unless P::kStridedOut
  const void* map_large;   // boxes of kFeatures x kLargeBox rows
  const void* map_small;   // boxes of kFeatures x kSmallBox rows
  int first_row;
  int num_rows;       // valid token rows
  int first_feature;  // of this warpgroup
  int num_features;   // of the whole output
};

/// P: Output, Activation, kTileRows (token rows that the accumulators cover), kStagingBytes, and
/// kStridedOut: rows of any stride, alignment and length, written element by element.
/// 16-bit outputs leave by TMA, under the next tile's products; the last rows of a tile that fill
/// no box, and 32-bit outputs, by ordinary stores.
template <class P>
class TransposedStore {
 public:
  using Out = typename P::Output;
  using Activation = typename P::Activation;
  static constexpr bool kGated = kIsGated<Activation>;
  static constexpr int kFeatures = kGated ? 32 : 64;  // output features of one warpgroup
  static constexpr int kValues = P::kTileRows / 2;
  static constexpr int kLargeBox = 32;
  static constexpr int kSmallBox = 16;

  /// `staging` belongs to this warpgroup, as does hardware barrier `barrier`.
  __device__ __forceinline__ TransposedStore(uint8_t* staging, int barrier)
      : staging_(smem_address(staging)), barrier_(barrier) {}

  /// Adds one bias per weight row; `low` is of row lane / 4 of the warp's 16, `high` of row + 8.
  static __device__ __forceinline__ void add_bias(float (&accum)[kValues], float low, float high) {
#pragma unroll
    for (int i = 0; i < kValues; i += 4) {
      accum[i] += low;
      accum[i + 1] += low;
      accum[i + 2] += high;
      accum[i + 3] += high;
    }
  }

  __device__ __forceinline__ void store(const float (&accum)[kValues], const OutputTile& tile,
                                        const Activation& activation) {
#pragma unroll
    for (int row = 0; row < P::kTileRows; row += Staged::kRows) {
      if (row < tile.num_rows) {
        const uint32_t base = staging_ + buffer_ * Staged::kBytes;
        buffer_ ^= 1;
        if (is_leader()) tma_store_wait_read<1>();
        named_barrier_sync(barrier_, kWarpgroupThreads);
        stage(accum, row, base, tile.num_rows, activation);
        fence_async_proxy();
        named_barrier_sync(barrier_, kWarpgroupThreads);
        const int num_rows = min(tile.num_rows - row, Staged::kRows);
        const int num_boxed = kByTma ? num_rows / kSmallBox * kSmallBox : 0;
        if (kByTma && is_leader()) send(base, tile, row, num_boxed);
        copy(base, tile, row, num_boxed, num_rows);
      }
    }
  }

  /// Counts one in `counter` once all that was stored is written.
  __device__ __forceinline__ void count_written(uint32_t* counter) const {
    if (is_leader()) tma_store_wait();
    named_barrier_sync(barrier_, kWarpgroupThreads);
    if (is_leader()) add_release(counter, 1);
  }

  /// Waits until the copy engine has read all that was staged; the grid's end waits for its writes.
  __device__ __forceinline__ void drain() {
    if (is_leader()) tma_store_wait_read<0>();
  }

 private:
  using Staged = StagedRows<Out, kFeatures, P::kStagingBytes / 2>;
  static constexpr bool kByTma = sizeof(Out) == 2 && !P::kStridedOut;
  static_assert(!kByTma || Staged::kRows % kLargeBox == 0,
                "TransposedStore: a buffer holds whole boxes");

  /// The two rows that accum[4 i ..] holds of one output feature; `half` 1: the feature 8 further.
  static __device__ __forceinline__ void values(const float (&accum)[kValues], int i, int half,
                                                const Activation& activation, float& even,
                                                float& odd) {
    if constexpr (kGated) {
      even = activation(accum[4 * i], accum[4 * i + 2]);
      odd = activation(accum[4 * i + 1], accum[4 * i + 3]);
    } else {
      even = accum[4 * i + 2 * half];
      odd = accum[4 * i + 2 * half + 1];
    }
  }

  /// Writes rows [row0, row0 + Staged::kRows) of the tile, as far as `num_rows` goes.
  static __device__ __forceinline__ void stage(const float (&accum)[kValues], int row0,
                                               uint32_t base, int num_rows,
                                               const Activation& activation) {
    constexpr int kHalves = kGated ? 1 : 2;
    constexpr int kRowBlocks = sizeof(Out) == 4 ? 1 : 4 / kHalves;  // of 8 rows, in one step
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads % 4;
    const int lane = lane_idx();
#pragma unroll
    for (int row = 0; row < Staged::kRows; row += 8 * kRowBlocks) {
      if (row0 + row >= P::kTileRows) break;  // known at compile time: the buffer may be larger
      if (row0 + row < num_rows) {
        if constexpr (sizeof(Out) == 4) {
#pragma unroll
          for (int half = 0; half < kHalves; ++half) {
            float even, odd;
            values(accum, (row0 + row) / 8, half, activation, even, odd);
            const int feature = (warp * kHalves + half) * 8 + lane / 4;
            const int at = row + 2 * (lane % 4);
            const int in_chunk = feature % 4 * 4;
            store_shared(base + Staged::offset(at, feature / 4) + in_chunk, even);
            store_shared(base + Staged::offset(at + 1, feature / 4) + in_chunk, odd);
          }
        } else {
          uint32_t packed[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float even, odd;
            values(accum, (row0 + row) / 8 + i / kHalves, i % kHalves, activation, even, odd);
            packed[i] = pack2<Out>(even, odd);
          }
          const int matrix = lane / 8;
          const int at = row + matrix / kHalves * 8 + lane % 8;
          const int chunk = warp * kHalves + matrix % kHalves;
          store_matrix_transposed(base + Staged::offset(at, chunk), packed[0], packed[1], packed[2],
                                  packed[3]);
        }
      }
    }
  }

  /// Sends the first `num_rows` staged rows, a multiple of the small box.
  static __device__ __forceinline__ void send(uint32_t base, const OutputTile& tile, int row0,
                                              int num_rows) {
    for (int row = 0; row < num_rows;) {
      const bool large = num_rows - row >= kLargeBox;
      tma_store_2d(large ? tile.map_large : tile.map_small, base + row * Staged::kRowBytes,
                   tile.first_feature, tile.first_row + row0 + row);
      row += large ? kLargeBox : kSmallBox;
    }
    tma_store_commit();
  }

  /// Copies staged rows [begin, end) out, 16 bytes a thread; features past the output's are not
  /// touched.
  static __device__ __forceinline__ void copy(uint32_t base, const OutputTile& tile, int row0,
                                              int begin, int end) {
    constexpr int kRowsAtOnce = kWarpgroupThreads / Staged::kChunks;
    constexpr int kPerChunk = 16 / static_cast<int>(sizeof(Out));
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    const int chunk = thread % Staged::kChunks;
    const int feature = tile.first_feature + chunk * kPerChunk;
    if (feature >= tile.num_features) return;
    if constexpr (P::kStridedOut) {
      for (int row = begin + thread / Staged::kChunks; row < end; row += kRowsAtOnce) {
        const Vector16 values = load_shared_16(base + Staged::offset(row, chunk));
        Out* out = static_cast<Out*>(tile.row0) + (row0 + row) * tile.row_stride;
#pragma unroll
        for (int i = 0; i < kPerChunk; ++i) {
          if (feature + i < tile.num_features) {
            out[(feature + i) * tile.feature_stride] = element(values, i);
          }
        }
      }
      return;
    }
    Out* out = static_cast<Out*>(tile.row0) + row0 * tile.row_stride + feature;
#pragma unroll 4
    for (int row = begin + thread / Staged::kChunks; row < end; row += kRowsAtOnce) {
      *reinterpret_cast<Vector16*>(out + row * tile.row_stride) =
          load_shared_16(base + Staged::offset(row, chunk));
    }
  }

  static __device__ __forceinline__ Out element(const Vector16& values, int i) {
    if constexpr (sizeof(Out) == 4) {
      return __uint_as_float(values.word[i]);
    } else {
      return Out{static_cast<uint16_t>(values.word[i / 2] >> (i % 2 * 16))};
    }
  }

  static __device__ __forceinline__ bool is_leader() {
    return threadIdx.x % kWarpgroupThreads == 0;
  }

  const uint32_t staging_;  // two buffers
  const int barrier_;
  int buffer_ = 0;
};

}  // namespace tileops::device
