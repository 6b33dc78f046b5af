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

/// Writes this CTA's columns of a token's row to the rows of its routes; row < 0: dropped.
template <class Unit>
__device__ __forceinline__ void copy_row(const Params& p, int64_t token, const int32_t* rows) {
  constexpr int kElements = sizeof(Unit) / sizeof(uint16_t);
  const auto* source = static_cast<const uint16_t*>(p.hidden) + token * p.hidden_token_stride;
  auto* target = static_cast<uint16_t*>(p.expert_input);
  const int64_t step = static_cast<int64_t>(gridDim.y) * kCtaThreads * kElements;
  for (int64_t column = (static_cast<int64_t>(blockIdx.y) * kCtaThreads + threadIdx.x) * kElements;
       column < p.hidden_size; column += step) {
    const int64_t offset = kElements == 1 ? column * p.hidden_stride : column;
    const Unit value = *reinterpret_cast<const Unit*>(source + offset);
#pragma unroll 8
    for (int k = 0; k < p.sort.top_k; ++k) {
      const int64_t row = rows[k];
      if (row < 0) continue;
      *reinterpret_cast<Unit*>(target + row * p.hidden_size + column) = value;
    }
  }
}

template <class Unit>
__global__ void __launch_bounds__(kCtaThreads) copy_rows(const __grid_constant__ Params p) {
  route_sort::begin_kernel();
  const int64_t token = blockIdx.x;
  copy_row<Unit>(p, token, p.inverse + token * p.sort.top_k);
}

/// The row of a route: the routes that come before it, in its expert alone where slabs are masked.
/// A warp counts.
__device__ __forceinline__ int row_of_few(const Params& p, const int32_t* ids, int route) {
  const bool masked = p.layout == LayoutKind::kMasked;
  const int expert = ids[route];
  int before = 0;
  for (int first = 0; first < p.sort.num_routes; first += kWarpThreads) {
    const int other = first + device::lane_idx(), id = ids[other];
    const bool lower = !masked && id >= 0 && id < expert;
    before += __popc(__ballot_sync(0xffffffffu, lower || (id == expert && other < route)));
  }
  if (expert < 0) return -1;
  if (!masked) return before;
  return before < p.max_m ? expert * p.max_m + before : -1;
}

/// The metadata of this thread's expert.
__device__ __forceinline__ void write_metadata_of_few(const Params& p, const int32_t* ids,
                                                      int expert) {
  if (expert >= p.sort.num_experts || blockIdx.y > 0) return;
  const bool masked = p.layout == LayoutKind::kMasked;
  int count = 0;
#pragma unroll 8
  for (int route = 0; route < p.sort.num_routes; ++route) {
    const int id = ids[route];
    count += masked ? id == expert : id >= 0 && id <= expert;
  }
  p.metadata[expert] = masked && count > p.max_m ? p.max_m : count;
}

/// All in one launch: a CTA finds the rows of its token's routes by counting, and copies; those
/// past the tokens write the metadata.
template <class Unit>
__global__ void __launch_bounds__(kCtaThreads) permute_few(const __grid_constant__ Params p) {
  __shared__ int32_t ids[kFewRoutes], rows[kFewRoutes];
  route_sort::begin_kernel();
  for (int route = threadIdx.x; route < kFewRoutes; route += kCtaThreads) {
    ids[route] = route_sort::expert_of(p.sort, route, p.sort.num_routes);
  }
  __syncthreads();
  const int top_k = p.sort.top_k, num_tokens = p.sort.num_routes / top_k;
  const int token = static_cast<int>(blockIdx.x);
  if (token >= num_tokens) {
    write_metadata_of_few(p, ids, (token - num_tokens) * kCtaThreads + threadIdx.x);
    return;
  }
  for (int k = device::warp_idx(); k < top_k; k += kCtaThreads / kWarpThreads) {
    const int row = row_of_few(p, ids, token * top_k + k);
    if (device::lane_idx() > 0) continue;
    rows[k] = row;
    if (blockIdx.y == 0) p.inverse[token * top_k + k] = row;
  }
  __syncthreads();
  copy_row<Unit>(p, token, rows);
}

}  // namespace tileops::pre_permute
