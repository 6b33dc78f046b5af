// SPDX-License-Identifier: Apache-2.0
// The pre-permutation on a GPU: a stable counting sort of the routes, then each token's row read
// once and written to all its experts. The launch contract is in pre_permute_sm90_params.h.
#pragma once

#include "tileops/device/ptx/memory.cuh"
#include "tileops/ops/moe/pre_permute/pre_permute_sm90_params.h"
#include "tileops/ops/moe/route_sort_sm90.cuh"

namespace tileops::pre_permute {

using device::kWarpThreads;
using Params = PrePermuteSm90Params;

/// Writes this CTA's columns of a token's row to `count` rows, which find_rows() gives while the
/// first columns are on their way; row < 0: dropped.
template <class Unit, class FindRows>
__device__ __forceinline__ void copy_row(const Params& p, int64_t token, int count,
                                         const FindRows& find_rows) {
  constexpr int kElements = sizeof(Unit) / sizeof(uint16_t);
  const auto* source = static_cast<const uint16_t*>(p.hidden) + token * p.hidden_token_stride;
  auto* target = static_cast<uint16_t*>(p.expert_input);
  const int64_t step = static_cast<int64_t>(gridDim.y) * kCtaThreads * kElements;
  const auto load = [&](int64_t column) {
    if (column >= p.hidden_size) return Unit{};
    return *reinterpret_cast<const Unit*>(source +
                                          (kElements == 1 ? column * p.hidden_stride : column));
  };
  int64_t column = (static_cast<int64_t>(blockIdx.y) * kCtaThreads + threadIdx.x) * kElements;
  Unit value = load(column);
  const int32_t* rows = find_rows();
  while (column < p.hidden_size) {
    const Unit next = load(column + step);
#pragma unroll 8
    for (int k = 0; k < count; ++k) {
      const int64_t row = rows[k];
      if (row < 0) continue;
      *reinterpret_cast<Unit*>(target + row * p.hidden_size + column) = value;
    }
    value = next;
    column += step;
  }
}

/// The rows of `count` routes, in shared memory; after route_sort::rank_routes.
__device__ __forceinline__ const int32_t* find_rows(const Params& p, int first_route, int count) {
  __shared__ int32_t rows[kCtaThreads];
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (thread < count) {
    const int route = first_route + thread;
    const int expert = route_sort::expert_of(p.sort, route, p.sort.num_routes);
    int row = -1;
    if (expert >= 0) {
      const int rank = route_sort::rank_of(p.sort, route, expert);
      if (p.layout != LayoutKind::kMasked) row = p.sort.begins[expert] + rank;
      if (p.layout == LayoutKind::kMasked && rank < p.max_m) row = expert * p.max_m + rank;
    }
    rows[thread] = row;
    if (blockIdx.y == 0) p.inverse[route] = row;
  }
  __syncthreads();
  return rows;
}

/// The metadata of one expert, or of one row where the layout says so.
__device__ __forceinline__ void write_metadata(const Params& p, int64_t i) {
  if (p.layout == LayoutKind::kPerRow) {
    if (i < p.num_rows) p.metadata[i] = route_sort::expert_of_row(p.sort, i);
  } else if (i < p.sort.num_experts) {
    const int count = p.sort.totals[i];
    const bool masked = p.layout == LayoutKind::kMasked;
    p.metadata[i] = !masked ? p.sort.begins[i] + count : count < p.max_m ? count : p.max_m;
  }
}

/// A CTA copies a token's row; those past the tokens write the metadata.
template <class Unit>
__global__ void __launch_bounds__(kCtaThreads) copy_rows(const __grid_constant__ Params p) {
  route_sort::begin_kernel();
  const int top_k = p.sort.top_k;
  const int64_t token = blockIdx.x;
  if (token >= p.num_tokens) {
    if (blockIdx.y == 0) write_metadata(p, (token - p.num_tokens) * kCtaThreads + threadIdx.x);
    return;
  }
  for (int k = 0; k < top_k; k += kCtaThreads) {
    const int count = top_k - k < kCtaThreads ? top_k - k : kCtaThreads;
    copy_row<Unit>(p, token, count,
                   [&] { return find_rows(p, static_cast<int>(token) * top_k + k, count); });
  }
}

constexpr int kWarps = kCtaThreads / kWarpThreads;
constexpr int kRoutesAtOnce = 8;  // of a token, counted in one pass
constexpr uint32_t kDroppedKey = 0x7fffffff;

/// Loads all routes' keys to shared memory, a thread those kCtaThreads apart, all loads in flight at
/// once. Keys order routes by expert, then by place; the dropped come last.
__device__ __forceinline__ void load_keys(const Params& p, uint32_t* keys) {
  constexpr int kSteps = kFewRoutes / kCtaThreads;
  const auto num_experts = static_cast<uint32_t>(p.sort.num_experts);
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t ids[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int route = i * kCtaThreads + thread;
    if (route < p.sort.num_routes) ids[i] = p.sort.expert_ids[route];
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int route = i * kCtaThreads + thread;
    if (route >= p.sort.num_routes) continue;
    keys[route] = ids[i] < num_experts ? ids[i] * kFewRoutes + route : kDroppedKey;
  }
  __syncthreads();
}

/// Adds this thread's keys below each bound.
__device__ __forceinline__ void count_below(const Params& p, const uint32_t* keys,
                                            const uint32_t (&bounds)[kRoutesAtOnce],
                                            int (&counts)[kRoutesAtOnce]) {
#pragma unroll 2
  for (int route = threadIdx.x; route < p.sort.num_routes; route += kCtaThreads) {
    const uint32_t key = keys[route];
#pragma unroll
    for (int j = 0; j < kRoutesAtOnce; ++j) counts[j] += static_cast<int>((key - bounds[j]) >> 31);
  }
}

/// The rows of a token's routes, in shared memory. A route's row is the number of keys below its
/// own, from its expert's first key on where slabs are masked.
__device__ __forceinline__ const int32_t* find_rows_of_few(const Params& p, uint32_t* keys,
                                                           int token) {
  __shared__ int32_t counts[kWarps][kFewTopK], rows[kFewTopK];
  load_keys(p, keys);
  const bool masked = p.layout == LayoutKind::kMasked;
  const int thread = static_cast<int>(threadIdx.x), warp = device::warp_idx();
  const int top_k = p.sort.top_k, first_route = token * top_k, last_route = first_route + top_k - 1;
  for (int k = 0; k < top_k; k += kRoutesAtOnce) {
    uint32_t own[kRoutesAtOnce], first[kRoutesAtOnce];
    int before[kRoutesAtOnce] = {};
#pragma unroll
    for (int j = 0; j < kRoutesAtOnce; ++j) {
      const int route = first_route + k + j;
      own[j] = keys[route < last_route ? route : last_route];
      first[j] = own[j] / kFewRoutes * kFewRoutes;
    }
    if (masked) {
      count_below(p, keys, first, before);
#pragma unroll
      for (int j = 0; j < kRoutesAtOnce; ++j) before[j] = -before[j];
    }
    count_below(p, keys, own, before);
#pragma unroll
    for (int j = 0; j < kRoutesAtOnce; ++j) {
      const int count = __reduce_add_sync(route_sort::kAllLanes, before[j]);
      if (device::lane_idx() == 0 && k + j < top_k) counts[warp][k + j] = count;
    }
  }
  __syncthreads();
  for (int k = thread; k < top_k; k += kCtaThreads) {
    int row = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) row += counts[i][k];
    const int route = first_route + k, expert = static_cast<int>(keys[route] / kFewRoutes);
    if (masked) row = row < p.max_m ? expert * p.max_m + row : -1;
    rows[k] = expert < p.sort.num_experts ? row : -1;
    if (blockIdx.y == 0) p.inverse[route] = rows[k];
  }
  __syncthreads();
  return rows;
}

/// The metadata of this thread's expert, one of kCtaThreads.
__device__ __forceinline__ void write_metadata_of_few(const Params& p, uint32_t* keys,
                                                      int first_expert) {
  __shared__ int32_t counts[kCtaThreads];
  const bool masked = p.layout == LayoutKind::kMasked;
  const int thread = static_cast<int>(threadIdx.x);
  counts[thread] = 0;
  load_keys(p, keys);
  int lower = 0;
  for (int route = thread; route < p.sort.num_routes; route += kCtaThreads) {
    const int at = static_cast<int>(keys[route] / kFewRoutes) - first_expert;
    if (at < 0) ++lower;
    if (at >= 0 && at < kCtaThreads) atomicAdd(counts + at, 1);
  }
  lower = __reduce_add_sync(route_sort::kAllLanes, lower);
  if (!masked && device::lane_idx() == 0) atomicAdd(counts, lower);
  __syncthreads();
  int count = counts[thread];
  if (!masked) count = route_sort::sum_over_cta<kCtaThreads>(count).up_to_thread;
  if (masked && count > p.max_m) count = p.max_m;
  const int expert = first_expert + thread;
  if (expert < p.sort.num_experts) p.metadata[expert] = count;
}

/// All in one launch: a CTA finds the rows of its token's routes by counting, and copies; those
/// past the tokens write the metadata.
template <class Unit>
__global__ void __launch_bounds__(kCtaThreads) permute_few(const __grid_constant__ Params p) {
  __shared__ uint32_t keys[kFewRoutes];
  route_sort::begin_kernel();
  const int token = static_cast<int>(blockIdx.x), num_tokens = static_cast<int>(p.num_tokens);
  if (token < num_tokens) {
    copy_row<Unit>(p, token, p.sort.top_k, [&] { return find_rows_of_few(p, keys, token); });
  } else if (blockIdx.y == 0) {
    write_metadata_of_few(p, keys, (token - num_tokens) * kCtaThreads);
  }
}

}  // namespace tileops::pre_permute
