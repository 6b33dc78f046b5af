// SPDX-License-Identifier: Apache-2.0
// Few routes through their experts in one launch: weights stream through shared memory from the
// first claim to the last output, and the activations between the two products stay in L2.
//
// One warp loads weights, one the rows that they multiply, eight multiply; down's weights are on
// their way while gate_up's last tiles are computed elsewhere. Launch contract:
// indexed_expert_mlp_sm90_params.h.
#pragma once

#include "tileops/device/epilogue/activation.cuh"
#include "tileops/device/mma/warp_mma.cuh"
#include "tileops/device/mma/wgmma.cuh"
#include "tileops/device/pipeline/ring.cuh"
#include "tileops/device/ptx/memory.cuh"
#include "tileops/device/ptx/tma.cuh"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_sm90_plan.cuh"

namespace tileops::indexed_expert_mlp {

using device::RingBarriers;
using device::RingPosition;

constexpr int kGroup = 64;           // elements of a swizzled row of 128 bytes
constexpr int kChunk = 12 * kGroup;  // elements along K of a slot
constexpr int kBoxBytes = kChunk * 2 * kBoxRows;
constexpr int kPitch = kChunk * 2 + 16;  // of the routes' rows: no two of 8 meet in a bank
constexpr int kSlots = 5;
constexpr int kMathThreads = kMathWarps * kWarpThreads;
constexpr int kStepK = 32;  // of a warp at once
constexpr int kStepsOfWarp = kChunk / kStepK / kMathWarps;
constexpr int kMathBarrier = 1;  // hardware barrier of the multiplying warps
static_assert(kChunk % (kStepK * kMathWarps) == 0);

struct Storage {
  alignas(1024) uint8_t weights[kSlots][kTileRows / kBoxRows][kBoxBytes];
  alignas(16) uint8_t rows[kSlots][kTileColumns * kPitch];
  float partial_sums[2][kMathWarps][kTileRows][kTileColumns];
  float products[kTileRows][kMaxRoutes + 1];  // of the current output columns and all routes
  Plan plan;
  RingBarriers<kSlots> ring;
  RingBarriers<2> share_ring;
  int32_t shares[2];
};
static_assert(sizeof(Storage) <= kStreamSmemBytes);

__device__ __forceinline__ int num_shares() { return 2 * static_cast<int>(gridDim.x); }

/// Lane 0 of the first warp: claims shares, tells the other warps, loads the tiles' weights.
__device__ __forceinline__ void load_weights(const IndexedSm90Params& p, Storage& smem, int share) {
  RingPosition<kSlots> at;
  RingPosition<2> share_at;
  for (;; share = claim_share(p)) {
    smem.share_ring.wait_empty(share_at);
    smem.shares[share_at.stage] = share;
    smem.share_ring.full_[share_at.stage].arrive();
    share_at.advance();
    if (share >= num_shares()) return;
    for_each_tile(p, smem.plan, share, [&](const Tile& tile) {
      const TensorMap& map = tile.is_down ? p.down_map : p.gate_up_map;
      const int num_boxes = tile.is_down ? tile.count / kBoxRows : 2;  // gate and up
      for (int k = 0; k < tile.k; k += kChunk) {
        smem.ring.wait_empty(at);
        device::Mbarrier& full = smem.ring.full_[at.stage];
        full.arrive_expect_tx(num_boxes * kBoxBytes);
        for (int box = 0; box < num_boxes; ++box) {
          const int row = tile.first + (tile.is_down ? box * kBoxRows : 0);
          device::tma_load_5d(smem.weights[at.stage][box], &map, full, 0, row,
                              tile.is_down ? 0 : box, k / kGroup, tile.group.expert);
        }
        at.advance();
      }
    });
  }
}

/// A thread's reading of the shares that load_weights claims.
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

/// Waits until the gate_up of all CTAs is in global memory.
__device__ __forceinline__ void wait_for_gate_up(const IndexedSm90Params& p) {
  while (device::load_acquire(p.counters + 1) < gridDim.x) {
  }
  device::fence_async_proxy_global();
}

/// Lane 0 of the second warp: loads the rows that weights multiply, tokens' or activated ones.
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
      for (int k = 0; k < tile.k; k += kChunk) {
        smem.ring.wait_empty(at);
        device::Mbarrier& full = smem.ring.full_[at.stage];
        const uint32_t bytes = 2 * min(kChunk, tile.k - k);
        full.arrive_expect_tx(tile.group.count * bytes);
        for (int i = 0; i < tile.group.count; ++i) {
          const int position = tile.group.first + i;
          const T* row =
              tile.is_down
                  ? static_cast<const T*>(p.activated) + static_cast<int64_t>(position) * p.inter
                  : static_cast<const T*>(p.x.data) + smem.plan.tokens[position] * p.x.row_stride;
          device::bulk_load(smem.rows[at.stage] + i * kPitch, row + k, bytes, full);
        }
        at.advance();
      }
    });
  }
  if (!waited) wait_for_gate_up(p);
  count_finished(p);
}

/// sums += this warp's steps of a slot's `length` values along K. Weights lie in groups of 64, 8
/// rows each, the 16 bytes at c in row r of a group at c ^ r.
template <class T>
__device__ __forceinline__ void multiply(const Storage& smem, int stage, int warp, int length,
                                         float (&sums)[4]) {
  const int lane = device::lane_idx(), row = lane % 8;
  const uint32_t a_at =
      device::smem_address(smem.weights[stage][lane / 8 % 2]) + row * device::kSwizzleBytes;
  const uint32_t b_at = device::smem_address(smem.rows[stage]) + row * kPitch + lane / 8 * 16;
#pragma unroll
  for (int step = 0; step < kStepsOfWarp; ++step) {
    const int k = (step * kMathWarps + warp) * kStepK;
    if (k < length) {
      const uint32_t group_at = a_at + k / kGroup * (kBoxRows * device::kSwizzleBytes);
      const int chunk = k % kGroup / 8 + lane / 16;
      uint32_t first[4], second[4], b[4];
      device::load_matrices(first, group_at + ((chunk ^ row) << 4));
      device::load_matrices(second, group_at + (((chunk + 2) ^ row) << 4));
      device::load_matrices(b, b_at + k * 2);
      device::warp_mma<T>(sums, first, b[0], b[1]);
      device::warp_mma<T>(sums, second, b[2], b[3]);
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
        if (tile.k > 0) multiply_tile(tile);
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
  __device__ __forceinline__ void multiply_tile(const Tile& tile) {
    float sums[4] = {};
    for (int k = 0; k < tile.k; k += kChunk) {
      smem_.ring.wait_full(at_);
      multiply<T>(smem_, at_.stage, warp_, min(kChunk, tile.k - k), sums);
      __syncwarp();
      if (device::lane_idx() == 0) smem_.ring.empty_[at_.stage].arrive();
      at_.advance();
    }
    const int row = device::lane_idx() / 4, column = device::lane_idx() % 4 * 2;
    float(&mine)[kTileRows][kTileColumns] = smem_.partial_sums[buffer_][warp_];
    mine[row][column] = sums[0];
    mine[row][column + 1] = sums[1];
    mine[row + 8][column] = sums[2];
    mine[row + 8][column + 1] = sums[3];
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
    if (column >= tile.group.count) return;
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
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  auto& smem = *reinterpret_cast<Storage*>(shared_bytes);
  if (threadIdx.x == 0) {
    device::prefetch_tensor_map(&p.gate_up_map);
    device::prefetch_tensor_map(&p.down_map);
    smem.ring.init(2, kMathWarps);
    smem.share_ring.init(1, kMathThreads + 1);
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
      load_weights(p, smem, share);
    } else {
      load_rows<T>(p, smem);
    }
  }
}

}  // namespace tileops::indexed_expert_mlp
