// SPDX-License-Identifier: Apache-2.0
// A stable counting sort of routes by expert: what the kernels that order routes share.
#pragma once

#include "tileops/device/ptx/threads.cuh"
#include "tileops/ops/moe/route_sort_sm90_params.h"

namespace tileops::route_sort {

using device::kWarpThreads;
constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kIdsAhead = 4;  // loads in flight of a lane

/// The expert of a route; -1: dropped, or no route.
__device__ __forceinline__ int expert_of(const RouteSortParams& p, int route, int end) {
  if (route >= end) return -1;
  const int token = route / p.top_k, choice = route % p.top_k;
  const int id = p.expert_ids[token * p.ids_token_stride + choice * p.ids_choice_stride];
  return static_cast<uint32_t>(id) < static_cast<uint32_t>(p.num_experts) ? id : -1;
}

__device__ __forceinline__ int sum_up_to_lane(int value) {
#pragma unroll
  for (int step = 1; step < kWarpThreads; step *= 2) {
    const int before = __shfl_up_sync(kAllLanes, value, step);
    if (device::lane_idx() >= step) value += before;
  }
  return value;
}

__device__ __forceinline__ void begin_kernel() {
  device::wait_for_previous_kernel();
  device::allow_next_kernel();
}

__device__ __forceinline__ int first_route(const RouteSortParams& p) {
  return blockIdx.x * p.chunk_routes;
}
__device__ __forceinline__ int end_route(const RouteSortParams& p) {
  return p.num_routes - first_route(p) < p.chunk_routes ? p.num_routes
                                                        : first_route(p) + p.chunk_routes;
}

/// Counts a chunk's routes of each expert in `counters`.
__device__ __forceinline__ void count_chunk(const RouteSortParams& p, int32_t* counters) {
  const int step = static_cast<int>(blockDim.x), end = end_route(p);
  for (int e = threadIdx.x; e < p.num_experts; e += step) counters[e] = 0;
  __syncthreads();
#pragma unroll kIdsAhead
  for (int at = threadIdx.x; at < end - first_route(p); at += step) {
    const int expert = expert_of(p, first_route(p) + at, end);
    if (expert >= 0) atomicAdd(counters + expert, 1);
  }
  __syncthreads();
}

/// A CTA a chunk; 4 * num_experts bytes of dynamic shared memory.
__global__ void __launch_bounds__(kCtaThreads)
    count_routes(const __grid_constant__ RouteSortParams p) {
  extern __shared__ int32_t counters[];
  begin_kernel();
  count_chunk(p, counters);
  for (int e = threadIdx.x; e < p.num_experts; e += kCtaThreads) {
    p.chunk_counts[static_cast<int64_t>(e) * p.num_chunks + blockIdx.x] = counters[e];
  }
}

/// A warp an expert, after count_routes.
__global__ void __launch_bounds__(kCtaThreads)
    sum_chunks(const __grid_constant__ RouteSortParams p) {
  begin_kernel();
  const int expert = static_cast<int>(blockIdx.x) * kExpertsPerCta + device::warp_idx();
  if (expert >= p.num_experts) return;
  int32_t* counts = p.chunk_counts + static_cast<int64_t>(expert) * p.num_chunks;
  int sum = 0;
  for (int first = 0; first < p.num_chunks; first += kWarpThreads) {
    const int chunk = first + device::lane_idx();
    const int count = chunk < p.num_chunks ? counts[chunk] : 0;
    const int up_to = sum_up_to_lane(count);
    if (chunk < p.num_chunks) counts[chunk] = sum + up_to - count;
    sum += __shfl_sync(kAllLanes, up_to, kWarpThreads - 1);
  }
  if (device::lane_idx() == 0) p.totals[expert] = sum;
}

/// Sets `counters`, where the chunk's next route of each expert goes, to
/// what visit(expert, first row, routes of all chunks, routes of earlier chunks) makes of them.
/// Returns the rows of all experts.
template <class Visit>
__device__ __forceinline__ int start_rows(const RouteSortParams& p, int32_t* counters,
                                          const Visit& visit) {
  int rows = 0;
  for (int first = 0; first < p.num_experts; first += kWarpThreads) {
    const int expert = first + device::lane_idx();
    const bool exists = expert < p.num_experts;
    int count = 0, earlier = 0;
    if (exists && p.num_chunks == 1) count = counters[expert];
    if (exists && p.num_chunks > 1) {
      count = p.totals[expert];
      earlier = p.chunk_counts[static_cast<int64_t>(expert) * p.num_chunks + blockIdx.x];
    }
    const int padded = (count + p.alignment - 1) / p.alignment * p.alignment;
    const int up_to = sum_up_to_lane(padded);
    const int begin = rows + up_to - padded;
    rows += __shfl_sync(kAllLanes, up_to, kWarpThreads - 1);
    if (!exists) continue;
    counters[expert] = visit(expert, begin, count, earlier);
  }
  __syncwarp();
  return rows;
}

/// Calls visit(route, expert, counter) for the chunk's routes in their order; one warp.
template <class Visit>
__device__ __forceinline__ void place_chunk(const RouteSortParams& p, int32_t* counters,
                                            const Visit& visit) {
  const int end = end_route(p);
  const uint32_t lanes_before = (1u << device::lane_idx()) - 1;
  for (int first = first_route(p); first < end; first += kIdsAhead * kWarpThreads) {
    int experts[kIdsAhead];
#pragma unroll
    for (int i = 0; i < kIdsAhead; ++i) {
      experts[i] = expert_of(p, first + i * kWarpThreads + device::lane_idx(), end);
    }
#pragma unroll
    for (int i = 0; i < kIdsAhead; ++i) {
      const int expert = experts[i], route = first + i * kWarpThreads + device::lane_idx();
      const uint32_t same = __match_any_sync(kAllLanes, expert);
      const int rank = __popc(same & lanes_before);
      const int counter = expert < 0 ? 0 : counters[expert];
      __syncwarp();
      if (expert >= 0 && rank == 0) counters[expert] = counter + __popc(same);
      __syncwarp();
      if (route < end) visit(route, expert, counter + rank);
    }
  }
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
