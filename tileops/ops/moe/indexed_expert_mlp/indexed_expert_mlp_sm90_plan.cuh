// SPDX-License-Identifier: Apache-2.0
// The work of the indexed experts' streaming kernel: routes by expert, shares, tiles.
#pragma once

#include "tileops/device/ptx/memory.cuh"
#include "tileops/device/ptx/threads.cuh"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_sm90_params.h"

namespace tileops::indexed_expert_mlp {

using device::kWarpThreads;

constexpr int kTileRows = 16;     // weight rows of a product
constexpr int kTileColumns = 14;  // routes that share a reading of weights: as many as memory holds

/// Routes of one expert whose products share one reading of its weights.
struct Group {
  int32_t expert;
  int32_t first;  // among the sorted routes
  int32_t count;  // up to kTileColumns
};

/// Every CTA sorts all routes for itself; dropped ones are left out.
struct Plan {
  alignas(16) uint32_t ids[kMaxRoutes];  // kDropped, which no id exceeds: dropped
  float weights[kMaxRoutes];             // of the routes as they come
  int32_t positions[kMaxRoutes];         // of a route among the sorted ones; -1: dropped
  int32_t tokens[kMaxRoutes];            // of the sorted routes
  uint32_t starts[kMaxRoutes / 32];      // bits: a group starts at the position
  Group groups[kMaxRoutes];
  int32_t num_groups;

  /// All threads of the CTA call it.
  __device__ __forceinline__ void build(const IndexedSm90Params& p) {
    const int num_routes = static_cast<int>(p.num_tokens) * p.top_k;
    const int route = static_cast<int>(threadIdx.x);
    const bool exists = route < num_routes;
    const uint32_t id = exists ? load_route(p, route) : kDropped;
    if (route < kMaxRoutes) ids[route] = id;
    if (route < kMaxRoutes / 32) starts[route] = 0;
    __syncthreads();
    const Rank rank = exists ? rank_of(id, route, num_routes) : Rank{};
    const bool starts_group = id != kDropped && rank.same_before % kTileColumns == 0;
    const int position = rank.lower + rank.same_before;
    if (exists) positions[route] = id == kDropped ? -1 : position;
    if (id != kDropped) tokens[position] = route / p.top_k;
    if (starts_group) atomicOr(starts + position / 32, 1u << position % 32);
    __syncthreads();
    if (starts_group) {
      const int left = rank.same - rank.same_before;
      groups[starts_before(position)] = {static_cast<int32_t>(id), position,
                                         left < kTileColumns ? left : kTileColumns};
    }
    if (threadIdx.x == 0) num_groups = starts_before(kMaxRoutes);
    __syncthreads();
  }

 private:
  static constexpr uint32_t kDropped = 0xffffffffu;

  /// Other routes by their id: below the route's; equal to it, in all and before the route.
  struct Rank {
    int lower = 0, same = 0, same_before = 0;
  };

  /// The route's id; its weight is kept.
  __device__ __forceinline__ uint32_t load_route(const IndexedSm90Params& p, int route) {
    const int64_t token = route / p.top_k, choice = route % p.top_k;
    weights[route] = static_cast<const float*>(
        p.weights.data)[token * p.weights.row_stride + choice * p.weights.column_stride];
    const auto id = static_cast<const uint32_t*>(
        p.ids.data)[token * p.ids.row_stride + choice * p.ids.column_stride];
    return id < static_cast<uint32_t>(p.num_experts) ? id : kDropped;
  }

  __device__ __forceinline__ Rank rank_of(uint32_t id, int route, int num_routes) const {
    Rank rank;
#pragma unroll 2
    for (int first = 0; first < num_routes; first += 4) {
      const auto four = *reinterpret_cast<const device::Vector16*>(ids + first);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rank.lower += four.word[i] < id;
        rank.same += four.word[i] == id;
        rank.same_before += four.word[i] == id && first + i < route;
      }
    }
    return rank;
  }

  /// Groups that start below `position`.
  __device__ __forceinline__ int starts_before(int position) const {
    int count = 0;
    for (int word = 0; word < position / 32; ++word) count += __popc(starts[word]);
    if (position % 32 != 0) count += __popc(starts[position / 32] & ((1u << position % 32) - 1));
    return count;
  }
};
static_assert(kMaxRoutes <= kStreamThreads, "a thread a route");

/// Weight rows of one expert, all of K, times the routes of a group. Gate and up rows of a feature
/// stand 8 rows apart, so that one thread's accumulators hold both.
struct Tile {
  bool is_down;
  bool is_last;  // group of these output columns
  Group group;
  int first;  // feature (gate and up), output column (down)
  int count;  // of features, up to 8; of columns, up to 16
  int k;      // length of the rows
};

/// A CTA's part of gate_up (shares [0, n)) or of down (shares [n, 2n)), with equal bytes of weights.
/// Its tiles come in the order in which all roles of the CTA take them.
template <class Visit>
__device__ __forceinline__ void for_each_tile(const IndexedSm90Params& p, const Plan& plan,
                                              int share, const Visit& visit) {
  const int num_shares = static_cast<int>(gridDim.x);
  const bool is_down = share >= num_shares;
  const int64_t part = is_down ? share - num_shares : share;
  const int64_t all = is_down ? p.hidden_size : int64_t{plan.num_groups} * p.inter;
  const int64_t begin = all * part / num_shares, end = all * (part + 1) / num_shares;
  if (is_down) {
    for (int first = static_cast<int>(begin); first < end; first += kTileRows) {
      const int count = min(kTileRows, static_cast<int>(end) - first);
      if (plan.num_groups == 0) visit(Tile{true, true, {}, first, count, 0});
      for (int group = 0; group < plan.num_groups; ++group) {
        visit(Tile{true, group + 1 == plan.num_groups, plan.groups[group], first, count, p.inter});
      }
    }
  } else {
    int group = static_cast<int>(begin / p.inter), first = static_cast<int>(begin % p.inter);
    for (int64_t at = begin; at < end;) {
      const int left = min(p.inter - first, static_cast<int>(end - at));
      const int count = min(kTileRows / 2, left);
      visit(Tile{false, false, plan.groups[group], first, count, p.hidden_size});
      at += count;
      first += count;
      if (first == p.inter) {
        first = 0;
        ++group;
      }
    }
  }
}

/// Shares are claimed in order, so that whoever waits for gate_up waits for CTAs that run: no CTA
/// need be resident with another. Each CTA's last claim fails; the counter then wraps to zero.
__device__ __forceinline__ int claim_share(const IndexedSm90Params& p) {
  return static_cast<int>(atomicInc(p.counters, 3 * gridDim.x - 1));
}

/// counters[1] counts the finished gate_up shares, then the CTAs that know of all; it wraps to zero.
__device__ __forceinline__ void count_finished(const IndexedSm90Params& p) {
  __threadfence();
  atomicInc(p.counters + 1, 2 * gridDim.x - 1);
}

}  // namespace tileops::indexed_expert_mlp
