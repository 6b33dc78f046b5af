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

/// Writes the row of each of the chunk's routes; the first chunk also the metadata. Rows of masked
/// layouts are counted within the expert.
__global__ void __launch_bounds__(kWarpThreads) place_routes(const __grid_constant__ Params p) {
  extern __shared__ int32_t counters[];
  route_sort::begin_kernel();
  if (p.sort.num_chunks == 1) route_sort::count_chunk(p.sort, counters);
  const bool masked = p.layout == LayoutKind::kMasked, first_chunk = blockIdx.x == 0;
  const auto start = [&](int expert, int begin, int count, int earlier) {
    if (first_chunk && p.layout == LayoutKind::kPerRow) {
      p.sort.begins[expert] = begin;
    } else if (first_chunk) {
      p.metadata[expert] = !masked ? begin + count : count < p.max_m ? count : p.max_m;
    }
    return masked ? earlier : begin + earlier;
  };
  const int num_rows = route_sort::start_rows(p.sort, counters, start);
  if (first_chunk && p.layout == LayoutKind::kPerRow && device::lane_idx() == 0) {
    p.sort.begins[p.sort.num_experts] = num_rows;
  }
  route_sort::place_chunk(p.sort, counters, [&](int route, int expert, int row) {
    if (masked) row = row < p.max_m ? expert * p.max_m + row : -1;
    p.inverse[route] = expert < 0 ? -1 : row;
  });
}

/// Writes the expert of each row.
__global__ void __launch_bounds__(kCtaThreads) mark_rows(const __grid_constant__ Params p) {
  route_sort::begin_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kCtaThreads + threadIdx.x;
  if (row < p.num_rows) p.metadata[row] = route_sort::expert_of_row(p.sort, row);
}

/// Writes this CTA's columns of a token's row to the rows of its routes, which find_rows() gives
/// while the first columns are on their way; row < 0: dropped.
template <class Unit, class FindRows>
__device__ __forceinline__ void copy_row(const Params& p, int64_t token,
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
    for (int k = 0; k < p.sort.top_k; ++k) {
      const int64_t row = rows[k];
      if (row < 0) continue;
      *reinterpret_cast<Unit*>(target + row * p.hidden_size + column) = value;
    }
    value = next;
    column += step;
  }
}

template <class Unit>
__global__ void __launch_bounds__(kCtaThreads) copy_rows(const __grid_constant__ Params p) {
  route_sort::begin_kernel();
  const int64_t token = blockIdx.x;
  copy_row<Unit>(p, token, [&] { return p.inverse + token * p.sort.top_k; });
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
  const int thread = static_cast<int>(threadIdx.x), warp = device::warp_idx();
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
  if (!masked) {
    int earlier = 0;
    for (int i = 0; i < warp; ++i) earlier += counts[i * kWarpThreads + device::lane_idx()];
    count = route_sort::sum_up_to_lane(count) + __reduce_add_sync(route_sort::kAllLanes, earlier);
  } else if (count > p.max_m) {
    count = p.max_m;
  }
  const int expert = first_expert + thread;
  if (expert < p.sort.num_experts) p.metadata[expert] = count;
}

/// All in one launch: a CTA finds the rows of its token's routes by counting, and copies; those
/// past the tokens write the metadata.
template <class Unit>
__global__ void __launch_bounds__(kCtaThreads) permute_few(const __grid_constant__ Params p) {
  __shared__ uint32_t keys[kFewRoutes];
  route_sort::begin_kernel();
  const int token = static_cast<int>(blockIdx.x), num_tokens = p.sort.num_routes / p.sort.top_k;
  if (token < num_tokens) {
    copy_row<Unit>(p, token, [&] { return find_rows_of_few(p, keys, token); });
  } else if (blockIdx.y == 0) {
    write_metadata_of_few(p, keys, (token - num_tokens) * kCtaThreads);
  }
}

}  // namespace tileops::pre_permute
