// SPDX-License-Identifier: Apache-2.0
// Few routes through their experts in one launch: weights stream through shared memory from the
// first claim to the last output, and the activations between the two products stay in L2.
//
// Two warps load weights, one the rows that they multiply, eight multiply; down's weights are on
// their way while gate_up's last tiles are computed elsewhere. Launch contract:
// indexed_expert_mlp_sm90_params.h.
#pragma once

#include "tileops/device/epilogue/activation.cuh"
#include "tileops/device/mma/warp_mma.cuh"
#include "tileops/device/pipeline/ring.cuh"
#include "tileops/device/ptx/memory.cuh"
#include "tileops/device/ptx/tma.cuh"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_sm90_plan.cuh"

namespace tileops::indexed_expert_mlp {

using device::RingBarriers;
using device::RingPosition;

constexpr int kChunk = 1024;        // elements along K of a slot
constexpr int kPitch = kChunk * 2;  // multiples of 128 bytes: copies to others are slower
// Three slots: with more, the rows that down multiplies wait behind weights that nobody waits for.
constexpr int kSlots = 3;
constexpr int kHalfRows = kTileRows / 2;  // gate or up; of a loading warp
constexpr int kMathThreads = kMathWarps * kWarpThreads;
constexpr int kWindow = 64;  // elements along K that a warp takes at once: 128 bytes of each row
constexpr int kWindowsOfWarp = kChunk / kWindow / kMathWarps;
constexpr int kMmaColumns = 8;
constexpr int kMathBarrier = 1;  // hardware barrier of the multiplying warps
static_assert(kChunk % (kWindow * kMathWarps) == 0);

struct Slot {
  uint8_t weights[kTileRows][kPitch];
  uint8_t rows[kTileColumns][kPitch];
};

struct Storage {
  alignas(128) Slot slots[kSlots];
  float partial_sums[2][kMathWarps][kTileRows][kTileColumns];
  float products[kTileRows][kMaxRoutes + 1];  // of the current output columns and all routes
  Plan plan;
  RingBarriers<kSlots> ring;
  RingBarriers<2> share_ring;
  int32_t shares[2];
};
static_assert(sizeof(Storage) <= kStreamSmemBytes);

__device__ __forceinline__ int num_shares() { return 2 * static_cast<int>(gridDim.x); }

/// Copies chunk by chunk, into the next slots, what row(i) names of `num_rows` rows, to the places
/// that target(slot, i) names.
template <class Row, class Target>
__device__ __forceinline__ void load_chunks(Storage& smem, RingPosition<kSlots>& at, int length,
                                            int num_rows, const Row& row, const Target& target) {
  for (int k = 0; k < length; k += kChunk) {
    smem.ring.wait_empty(at);
    device::Mbarrier& full = smem.ring.full_[at.stage];
    const uint32_t bytes = 2 * min(kChunk, length - k);
    full.arrive_expect_tx(num_rows * bytes);
#pragma unroll 4
    for (int i = 0; i < num_rows; ++i) {
      device::bulk_load(target(smem.slots[at.stage], i), row(i) + k, bytes, full);
    }
    at.advance();
  }
}

/// Loads a tile's rows [8 half, 8 half + 8): gates or ups, or output columns.
template <class T>
__device__ __forceinline__ void load_weights(const IndexedSm90Params& p, Storage& smem,
                                             RingPosition<kSlots>& at, const Tile& tile, int half) {
  const RowsView& w = tile.is_down ? p.w_down : p.w_gate_up;
  const bool interleaved = p.activation.kind == device::ActivationKind::kSwigluOai;
  int64_t first = tile.first, next = 1;
  int num_rows = tile.count;
  if (tile.is_down) {
    first += half * kHalfRows;
    num_rows = min(max(tile.count - half * kHalfRows, 0), kHalfRows);
  } else if (interleaved) {
    first = 2 * first + half;
    next = 2;
  } else {
    first += int64_t{half} * p.inter;
  }
  const T* base =
      static_cast<const T*>(w.data) + tile.group.expert * w.expert_stride + first * w.row_stride;
  const int64_t step = next * w.row_stride;
  load_chunks(
      smem, at, tile.k, num_rows, [&](int i) { return base + i * step; },
      [&](Slot& slot, int i) { return slot.weights[half * kHalfRows + i]; });
}

/// Lane 0 of the first warp: claims shares, tells the other warps, loads the first half of tiles.
template <class T>
__device__ __forceinline__ void lead(const IndexedSm90Params& p, Storage& smem, int share) {
  RingPosition<kSlots> at;
  RingPosition<2> share_at;
  for (;; share = claim_share(p)) {
    smem.share_ring.wait_empty(share_at);
    smem.shares[share_at.stage] = share;
    smem.share_ring.full_[share_at.stage].arrive();
    share_at.advance();
    if (share >= num_shares()) return;
    for_each_tile(p, smem.plan, share,
                  [&](const Tile& tile) { load_weights<T>(p, smem, at, tile, 0); });
  }
}

/// A thread's reading of the shares that the first warp claims.
struct ShareReader {
  RingPosition<2> at;

  __device__ __forceinline__ int next(Storage& smem) {
    smem.share_ring.wait_full(at);
    const int share = smem.shares[at.stage];
    smem.share_ring.empty_[at.stage].arrive();
    at.advance();
    return share;
  }
};

/// Lane 0 of the second warp: loads the other half of tiles.
template <class T>
__device__ __forceinline__ void follow(const IndexedSm90Params& p, Storage& smem) {
  RingPosition<kSlots> at;
  ShareReader shares;
  for (int share = shares.next(smem); share < num_shares(); share = shares.next(smem)) {
    for_each_tile(p, smem.plan, share,
                  [&](const Tile& tile) { load_weights<T>(p, smem, at, tile, 1); });
  }
}

/// Waits until the gate_up of all CTAs is in global memory.
__device__ __forceinline__ void wait_for_gate_up(const IndexedSm90Params& p) {
  while (device::load_acquire(p.counters + 1) < gridDim.x) {
  }
  device::fence_async_proxy_global();
}

/// Lane 0 of the third warp: loads the rows that weights multiply, tokens' or activated ones.
template <class T>
__device__ __forceinline__ void load_rows(const IndexedSm90Params& p, Storage& smem) {
  RingPosition<kSlots> at;
  ShareReader shares;
  bool waited = false;
  for (int share = shares.next(smem); share < num_shares(); share = shares.next(smem)) {
    if (share >= static_cast<int>(gridDim.x) && !waited) {
      wait_for_gate_up(p);
      waited = true;
    }
    for_each_tile(p, smem.plan, share, [&](const Tile& tile) {
      const auto row = [&](int i) {
        const int64_t position = tile.group.first + i;
        return tile.is_down
                   ? static_cast<const T*>(p.activated) + position * p.inter
                   : static_cast<const T*>(p.x.data) + smem.plan.tokens[position] * p.x.row_stride;
      };
      load_chunks(smem, at, tile.k, tile.group.count, row,
                  [](Slot& slot, int i) { return slot.rows[i]; });
    });
  }
  if (!waited) wait_for_gate_up(p);
  count_finished(p);
}

/// A lane's 16 values of a window of a row: at 8 (lane % 4), and 32 further. Products may take K in
/// any order that is the same for both operands: pairs 0 and 1 of 8 neighbours are one step's, pairs
/// 2 and 3 the next one's.
struct Fragment {
  device::Vector16 half[2];

  /// `row`: of window 0 of the lane's row. Odd rows are read the other half first, so that no two
  /// rows meet in a bank. What lies at `left` and beyond is zero.
  __device__ __forceinline__ void load(uint32_t row, int left) {
    const int lane = device::lane_idx(), odd = lane / 4 % 2;
    const uint32_t at = row + lane % 4 * 16;
    const device::Vector16 first = device::load_shared_16(at + odd * 64);
    const device::Vector16 second = device::load_shared_16(at + (1 - odd) * 64);
    half[0] = odd != 0 ? second : first;
    half[1] = odd != 0 ? first : second;
    if (left >= kWindow) return;
    if (lane % 4 * 8 >= left) half[0] = {};
    if (lane % 4 * 8 + kWindow / 2 >= left) half[1] = {};
  }
};

/// sums += this warp's windows of a slot's `length` values along K, for kColumnBlocks times 8 routes.
template <class T, int kColumnBlocks>
__device__ __forceinline__ void multiply(const Slot& slot, int warp, int length,
                                         float (&sums)[kColumnBlocks][4]) {
  const int row = device::lane_idx() / 4;
  const uint32_t low = device::smem_address(slot.weights[row]);
  const uint32_t high = device::smem_address(slot.weights[row + kHalfRows]);
  Fragment a[kWindowsOfWarp][2], b[kWindowsOfWarp][kColumnBlocks];
#pragma unroll
  for (int i = 0; i < kWindowsOfWarp; ++i) {
    const int k = (i * kMathWarps + warp) * kWindow;
    a[i][0].load(low + k * 2, length - k);
    a[i][1].load(high + k * 2, length - k);
#pragma unroll
    for (int block = 0; block < kColumnBlocks; ++block) {
      const int column = min(block * kMmaColumns + row, kTileColumns - 1);
      b[i][block].load(device::smem_address(slot.rows[column]) + k * 2, length - k);
    }
  }
#pragma unroll
  for (int i = 0; i < kWindowsOfWarp; ++i) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int half = step / 2, pair = step % 2 * 2;
      const uint32_t(&a_low)[4] = a[i][0].half[half].word;
      const uint32_t(&a_high)[4] = a[i][1].half[half].word;
      const uint32_t tile[4] = {a_low[pair], a_high[pair], a_low[pair + 1], a_high[pair + 1]};
#pragma unroll
      for (int block = 0; block < kColumnBlocks; ++block) {
        const uint32_t(&columns)[4] = b[i][block].half[half].word;
        device::warp_mma<T>(sums[block], tile, columns[pair], columns[pair + 1]);
      }
    }
  }
}

/// The multiplying warps' view of a CTA's work.
template <class T>
class Math {
 public:
  __device__ __forceinline__ Math(const IndexedSm90Params& p, Storage& smem)
      : p_(p),
        smem_(smem),
        warp_(device::warp_idx() - kLoadWarps),
        thread_(threadIdx.x - kLoadWarps * kWarpThreads) {}

  __device__ __forceinline__ void run() {
    ShareReader shares;
    for (int share = shares.next(smem_); share < num_shares(); share = shares.next(smem_)) {
      for_each_tile(p_, smem_.plan, share, [&](const Tile& tile) {
        if (tile.k > 0 && tile.group.count <= kMmaColumns) multiply_tile<1>(tile);
        if (tile.k > 0 && tile.group.count > kMmaColumns) multiply_tile<2>(tile);
        if (tile.is_last) combine(tile);
      });
      if (share < static_cast<int>(gridDim.x)) {
        synchronize();
        if (thread_ == 0) count_finished(p_);
      }
    }
  }

 private:
  static __device__ __forceinline__ void synchronize() {
    device::named_barrier_sync(kMathBarrier, kMathThreads);
  }

  /// Each warp takes its steps along K; the sums of all warps then meet in shared memory.
  template <int kColumnBlocks>
  __device__ __forceinline__ void multiply_tile(const Tile& tile) {
    float sums[kColumnBlocks][4] = {};
    for (int k = 0; k < tile.k; k += kChunk) {
      smem_.ring.wait_full(at_);
      multiply<T, kColumnBlocks>(smem_.slots[at_.stage], warp_, min(kChunk, tile.k - k), sums);
      __syncwarp();
      if (device::lane_idx() == 0) smem_.ring.empty_[at_.stage].arrive();
      at_.advance();
    }
    const int row = device::lane_idx() / 4;
    float(&mine)[kTileRows][kTileColumns] = smem_.partial_sums[buffer_][warp_];
#pragma unroll
    for (int block = 0; block < kColumnBlocks; ++block) {
      const int column = block * kMmaColumns + device::lane_idx() % 4 * 2;
      if (column >= kTileColumns) continue;
      mine[row][column] = sums[block][0];
      mine[row][column + 1] = sums[block][1];
      mine[row + 8][column] = sums[block][2];
      mine[row + 8][column + 1] = sums[block][3];
    }
    synchronize();
    if (tile.is_down) {
      keep_products(tile);
    } else {
      store_activated(tile);
    }
    buffer_ ^= 1;
  }

  __device__ __forceinline__ float sum_of(int row, int column) const {
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kMathWarps; ++warp) {
      sum += smem_.partial_sums[buffer_][warp][row][column];
    }
    return sum;
  }

  __device__ __forceinline__ float bias_of(const RowsView& bias, int expert, int64_t row) const {
    if (bias.data == nullptr) return 0.0f;
    return device::to_float(
        static_cast<const T*>(bias.data)[expert * bias.expert_stride + row * bias.row_stride]);
  }

  __device__ __forceinline__ void store_activated(const Tile& tile) const {
    const int i = thread_ % 8, column = thread_ / 8;
    if (i >= tile.count || column >= tile.group.count) return;
    const int feature = tile.first + i, expert = tile.group.expert;
    const bool interleaved = p_.activation.kind == device::ActivationKind::kSwigluOai;
    const int64_t gate_row = interleaved ? 2 * feature : feature;
    const int64_t up_row = interleaved ? gate_row + 1 : gate_row + p_.inter;
    const float gate = sum_of(i, column) + bias_of(p_.b_gate_up, expert, gate_row);
    const float up = sum_of(i + 8, column) + bias_of(p_.b_gate_up, expert, up_row);
    T* row =
        static_cast<T*>(p_.activated) + static_cast<int64_t>(tile.group.first + column) * p_.inter;
    row[feature] = device::from_float<T>(device::activate(p_.activation, gate, up));
  }

  __device__ __forceinline__ void keep_products(const Tile& tile) const {
    const int i = thread_ % kTileRows, column = thread_ / kTileRows;
    if (i >= tile.count || column >= tile.group.count) return;
    smem_.products[i][tile.group.first + column] =
        sum_of(i, column) + bias_of(p_.b_down, tile.group.expert, tile.first + i);
  }

  /// The weighted sums of the tile's output columns, routes in their order.
  __device__ __forceinline__ void combine(const Tile& tile) const {
    synchronize();
    for (int at = thread_; at < kTileRows * static_cast<int>(p_.num_tokens); at += kMathThreads) {
      const int i = at % kTileRows, token = at / kTileRows;
      if (i >= tile.count) continue;
      float sum = 0.0f;
      for (int route = token * p_.top_k; route < (token + 1) * p_.top_k; ++route) {
        const int position = smem_.plan.positions[route];
        if (position >= 0) sum = fmaf(smem_.plan.weights[route], smem_.products[i][position], sum);
      }
      T* out = static_cast<T*>(p_.out) + token * p_.out_row_stride;
      out[(tile.first + i) * p_.out_column_stride] = device::from_float<T>(sum * p_.scaling);
    }
  }

  const IndexedSm90Params& p_;
  Storage& smem_;
  const int warp_;
  const int thread_;
  RingPosition<kSlots> at_;
  int buffer_ = 0;
};

template <class T>
__global__ void __launch_bounds__(kStreamThreads, 1)
    stream_experts(const __grid_constant__ IndexedSm90Params p) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  auto& smem = *reinterpret_cast<Storage*>(shared_bytes);
  if (threadIdx.x == 0) {
    smem.ring.init(kLoadWarps, kMathWarps);
    smem.share_ring.init(1, kMathThreads + kLoadWarps - 1);
    device::fence_barrier_init();
  }
  device::wait_for_previous_kernel();
  device::allow_next_kernel();
  int share = 0;
  if (threadIdx.x == 0) share = claim_share(p);
  smem.plan.build(p);
  const int warp = device::warp_idx();
  if (warp >= kLoadWarps) {
    Math<T>(p, smem).run();
  } else if (device::lane_idx() == 0) {
    if (warp == 0) {
      lead<T>(p, smem, share);
    } else if (warp == 1) {
      follow<T>(p, smem);
    } else {
      load_rows<T>(p, smem);
    }
  }
}

}  // namespace tileops::indexed_expert_mlp
