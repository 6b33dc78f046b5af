// SPDX-License-Identifier: Apache-2.0
// A stable counting sort of routes by expert: what the kernels that order routes share.
#pragma once

#include "tileops/device/ptx/threads.cuh"
#include "tileops/ops/moe/route_sort_sm90_params.h"

namespace tileops::route_sort {

using device::kWarpThreads;
constexpr uint32_t kAllLanes = 0xffffffffu;

/// The expert of a route; -1: dropped, or no route.
__device__ __forceinline__ int expert_of(const RouteSortParams& p, int route, int end) {
  if (route >= end) return -1;
  const int token = route / p.top_k, choice = route % p.top_k;
  const int id = p.expert_ids[token * p.ids_token_stride + choice * p.ids_choice_stride];
  return static_cast<uint32_t>(id) < static_cast<uint32_t>(p.num_experts) ? id : -1;
}

__device__ __forceinline__ void begin_kernel() {
  device::wait_for_previous_kernel();
  device::allow_next_kernel();
}

struct Sums {
  int up_to_thread, all;
};

/// Sums over a CTA of kThreads, all of which call it.
template <int kThreads>
__device__ __forceinline__ Sums sum_over_cta(int value) {
  __shared__ int32_t warp_sums[kThreads / kWarpThreads];
  const int lane = device::lane_idx(), warp = device::warp_idx();
#pragma unroll
  for (int step = 1; step < kWarpThreads; step *= 2) {
    const int before = __shfl_up_sync(kAllLanes, value, step);
    if (lane >= step) value += before;
  }
  __syncthreads();
  if (lane == kWarpThreads - 1) warp_sums[warp] = value;
  __syncthreads();
  Sums sums{value, 0};
#pragma unroll
  for (int i = 0; i < kThreads / kWarpThreads; ++i) {
    if (i < warp) sums.up_to_thread += warp_sums[i];
    sums.all += warp_sums[i];
  }
  return sums;
}

/// Ranks the 32 routes from `first` on, one a lane, and counts them.
template <int kSteps>
__device__ __forceinline__ void rank_steps(const RouteSortParams& p, const int32_t* experts,
                                           int first, int end, int32_t* counters) {
  const int lane = device::lane_idx();
  uint32_t same[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    same[i] = __match_any_sync(kAllLanes, experts[i * kWarpThreads + lane]);
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int expert = experts[i * kWarpThreads + lane], route = first + i * kWarpThreads + lane;
    const int rank = __popc(same[i] & ((1u << lane) - 1));
    const int counter = expert < 0 ? 0 : counters[expert];
    __syncwarp();
    if (expert >= 0 && rank == 0) counters[expert] = counter + __popc(same[i]);
    __syncwarp();
    if (route < end) p.ranks[route] = counter + rank;
  }
}

/// Writes the ranks of the chunk's routes, and leaves in `counters` how many each expert has. All
/// threads load, a warp ranks.
__device__ __forceinline__ void rank_chunk(const RouteSortParams& p, int32_t* counters) {
  constexpr int kLoads = 2, kSteps = 4;
  __shared__ int32_t experts[kLoads * kCtaThreads];
  const int thread = static_cast<int>(threadIdx.x), warp = device::warp_idx();
  const int begin = static_cast<int>(blockIdx.x) * p.chunk_routes;
  const int end = p.num_routes - begin < p.chunk_routes ? p.num_routes : begin + p.chunk_routes;
  for (int expert = thread; expert < p.num_experts; expert += kCtaThreads) counters[expert] = 0;
  for (int first = begin; first < end; first += kLoads * kCtaThreads) {
    int loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      loaded[i] = expert_of(p, first + i * kCtaThreads + thread, end);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) experts[i * kCtaThreads + thread] = loaded[i];
    __syncthreads();
    if (warp > 0) continue;
    for (int at = 0; at < kLoads * kCtaThreads && first + at < end; at += kSteps * kWarpThreads) {
      rank_steps<kSteps>(p, experts + at, first + at, end, counters);
    }
  }
  __syncthreads();
}

/// Whether this CTA is the last that comes here; it sees what the others wrote before.
__device__ __forceinline__ bool is_last_cta(uint32_t* num_done) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicInc(num_done, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  __threadfence();
  return is_last;
}

/// Turns an expert's counts of the chunks into sums over the chunks before; returns their sum.
__device__ __forceinline__ int sum_chunks(const RouteSortParams& p, int expert) {
  constexpr int kAhead = 16;
  int sum = 0;
  for (int first = 0; first < p.num_chunks; first += kAhead) {
    int counts[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int chunk = first + i;
      counts[i] = chunk < p.num_chunks ? p.chunk_counts[chunk * p.num_experts + expert] : 0;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int chunk = first + i;
      if (chunk < p.num_chunks) p.chunk_counts[chunk * p.num_experts + expert] = sum;
      sum += counts[i];
    }
  }
  return sum;
}

/// A CTA a chunk; 4 * num_experts bytes of dynamic shared memory. The last CTA sums.
__global__ void __launch_bounds__(kCtaThreads)
    rank_routes(const __grid_constant__ RouteSortParams p) {
  extern __shared__ int32_t counters[];
  begin_kernel();
  rank_chunk(p, counters);
  const int thread = static_cast<int>(threadIdx.x);
  for (int expert = thread; expert < p.num_experts; expert += kCtaThreads) {
    p.chunk_counts[static_cast<int>(blockIdx.x) * p.num_experts + expert] = counters[expert];
  }
  if (!is_last_cta(p.num_done)) return;
  int begin = 0;
  for (int first = 0; first < p.num_experts; first += kCtaThreads) {
    const int expert = first + thread;
    const bool exists = expert < p.num_experts;
    const int count = exists ? sum_chunks(p, expert) : 0;
    const int padded = (count + p.alignment - 1) / p.alignment * p.alignment;
    const Sums sums = sum_over_cta<kCtaThreads>(padded);
    if (exists) {
      p.totals[expert] = count;
      p.begins[expert] = begin + sums.up_to_thread - padded;
    }
    begin += sums.all;
  }
  if (thread == 0) p.begins[p.num_experts] = begin;
}

/// The rank of a route among all of its expert, after rank_routes.
__device__ __forceinline__ int rank_of(const RouteSortParams& p, int route, int expert) {
  const int chunk = route / p.chunk_routes;
  return p.ranks[route] + p.chunk_counts[chunk * p.num_experts + expert];
}

/// The expert whose rows hold `row`, the last that begins at or before it; num_experts past all.
__device__ __forceinline__ int expert_of_row(const RouteSortParams& p, int64_t row) {
  int low = 0, high = p.num_experts + 1;  // begins[i] <= row for i < low, > row from high on
  while (low < high) {
    const int middle = (low + high) / 2;
    if (p.begins[middle] <= row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - 1;
}

}  // namespace tileops::route_sort
