// SPDX-License-Identifier: Apache-2.0
// The work of the indexed experts' streaming kernel: routes by expert, shares, tiles.
#pragma once

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
  int32_t ids[kMaxRoutes];        // -1: dropped
  float weights[kMaxRoutes];      // of the routes as they come
  int32_t positions[kMaxRoutes];  // of a route among the sorted ones; -1: dropped
  int32_t tokens[kMaxRoutes];     // of the sorted routes
  int32_t starts[kMaxRoutes];  // a group starts with the route: its position, else a large number
  Group groups[kMaxRoutes];
  int32_t num_groups;

  /// All threads of the CTA call it.
  __device__ __forceinline__ void build(const IndexedSm90Params& p) {
    const int num_routes = static_cast<int>(p.num_tokens) * p.top_k;
    const int route = static_cast<int>(threadIdx.x);
    const bool exists = route < num_routes;
    int id = -1;
    if (exists) {
      const int64_t token = route / p.top_k, choice = route % p.top_k;
      id = static_cast<const int32_t*>(
          p.ids.data)[token * p.ids.row_stride + choice * p.ids.column_stride];
      if (static_cast<uint32_t>(id) >= static_cast<uint32_t>(p.num_experts)) id = -1;
      ids[route] = id;
      weights[route] = static_cast<const float*>(
          p.weights.data)[token * p.weights.row_stride + choice * p.weights.column_stride];
    }
    __syncthreads();
    int lower = 0, same = 0, same_before = 0;
#pragma unroll 4
    for (int other = 0; other < num_routes; ++other) {
      lower += ids[other] >= 0 && ids[other] < id;
      same += ids[other] == id;
      same_before += ids[other] == id && other < route;
    }
    const bool kept = exists && id >= 0, starts_group = kept && same_before % kTileColumns == 0;
    const int position = lower + same_before;
    if (exists) {
      positions[route] = kept ? position : -1;
      starts[route] = starts_group ? position : kMaxRoutes;
    }
    if (kept) tokens[position] = route / p.top_k;
    __syncthreads();
    int before = 0, all = 0;
#pragma unroll 4
    for (int other = 0; other < num_routes; ++other) {
      before += starts[other] < position;
      all += starts[other] < kMaxRoutes;
    }
    if (starts_group) {
      const int left = same - same_before;
      groups[before] = {id, position, left < kTileColumns ? left : kTileColumns};
    }
    if (threadIdx.x == 0) num_groups = all;
    __syncthreads();
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
