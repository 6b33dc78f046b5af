// SPDX-License-Identifier: Apache-2.0
// The pre-permutation on a GPU: a stable counting sort of the routes, then each token's row read
// once and written to all its experts. The launch contract is in pre_permute_sm90_params.h.
#pragma once

#include "tileops/device/ptx/memory.cuh"
#include "tileops/device/ptx/threads.cuh"
#include "tileops/ops/moe/pre_permute/pre_permute_sm90_params.h"

namespace tileops::pre_permute {

using device::kWarpThreads;
using Params = PrePermuteSm90Params;
constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kIdsAhead = 4;  // loads in flight of a lane

/// The expert of a route; -1: dropped, or no route.
__device__ __forceinline__ int expert_of(const Params& p, int route, int end) {
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

__device__ __forceinline__ int first_route(const Params& p) { return blockIdx.x * p.chunk_routes; }
__device__ __forceinline__ int end_route(const Params& p) {
  return p.num_routes - first_route(p) < p.chunk_routes ? p.num_routes
                                                        : first_route(p) + p.chunk_routes;
}

/// Counts a chunk's routes of each expert in `counters`.
__device__ __forceinline__ void count_chunk(const Params& p, int32_t* counters) {
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

__global__ void __launch_bounds__(kCtaThreads) count_routes(const __grid_constant__ Params p) {
  extern __shared__ int32_t counters[];
  begin_kernel();
  count_chunk(p, counters);
  for (int e = threadIdx.x; e < p.num_experts; e += kCtaThreads) {
    p.chunk_counts[static_cast<int64_t>(e) * p.num_chunks + blockIdx.x] = counters[e];
  }
}

__global__ void __launch_bounds__(kCtaThreads) sum_chunks(const __grid_constant__ Params p) {
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

/// Sets `counters` to the row of the chunk's first route of each expert (masked: counted within the
/// expert); the first chunk writes the metadata.
__device__ __forceinline__ void start_rows(const Params& p, int32_t* counters) {
  const bool masked = p.layout == LayoutKind::kMasked, first_chunk = blockIdx.x == 0;
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
    counters[expert] = masked ? earlier : begin + earlier;
    if (!first_chunk) continue;
    if (p.layout == LayoutKind::kPerRow) {
      p.begins[expert] = begin;
    } else {
      p.metadata[expert] = !masked ? begin + count : count < p.max_m ? count : p.max_m;
    }
  }
  if (first_chunk && p.layout == LayoutKind::kPerRow && device::lane_idx() == 0) {
    p.begins[p.num_experts] = rows;
  }
  __syncwarp();
}

/// Writes the row of each of the chunk's routes; one warp, so that routes keep their order.
__global__ void __launch_bounds__(kWarpThreads) place_routes(const __grid_constant__ Params p) {
  extern __shared__ int32_t counters[];
  begin_kernel();
  if (p.num_chunks == 1) count_chunk(p, counters);
  start_rows(p, counters);
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
      int row = expert < 0 ? 0 : counters[expert];
      __syncwarp();
      if (expert >= 0 && rank == 0) counters[expert] = row + __popc(same);
      __syncwarp();
      row += rank;
      if (p.layout == LayoutKind::kMasked) row = row < p.max_m ? expert * p.max_m + row : -1;
      if (route < end) p.inverse[route] = expert < 0 ? -1 : row;
    }
  }
}

/// Writes the expert of each row: the last one that begins at or before it.
__global__ void __launch_bounds__(kCtaThreads) mark_rows(const __grid_constant__ Params p) {
  begin_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kCtaThreads + threadIdx.x;
  if (row >= p.num_rows) return;
  int low = 0, high = p.num_experts + 1;  // begins[i] <= row for i < low, > row from high on
  while (low < high) {
    const int middle = (low + high) / 2;
    if (p.begins[middle] <= row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  p.metadata[row] = low - 1;
}

template <class Unit>
__global__ void __launch_bounds__(kCtaThreads) copy_rows(const __grid_constant__ Params p) {
  begin_kernel();
  constexpr int kElements = sizeof(Unit) / sizeof(uint16_t);
  const int64_t token = blockIdx.x;
  const int32_t* rows = p.inverse + token * p.top_k;
  const auto* source = static_cast<const uint16_t*>(p.hidden) + token * p.hidden_token_stride;
  auto* target = static_cast<uint16_t*>(p.expert_input);
  const int64_t step = static_cast<int64_t>(gridDim.y) * kCtaThreads * kElements;
  for (int64_t column = (static_cast<int64_t>(blockIdx.y) * kCtaThreads + threadIdx.x) * kElements;
       column < p.hidden_size; column += step) {
    const int64_t offset = kElements == 1 ? column * p.hidden_stride : column;
    const Unit value = *reinterpret_cast<const Unit*>(source + offset);
#pragma unroll 8
    for (int k = 0; k < p.top_k; ++k) {
      const int64_t row = rows[k];
      if (row < 0) continue;
      *reinterpret_cast<Unit*>(target + row * p.hidden_size + column) = value;
    }
  }
}

}  // namespace tileops::pre_permute
