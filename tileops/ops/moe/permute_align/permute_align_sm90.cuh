// SPDX-License-Identifier: Apache-2.0
// The block-aligned order on a GPU: a stable counting sort of the routes, then padding and blocks.
// The launch contract is in permute_align_sm90_params.h.
#pragma once

#include "tileops/ops/moe/permute_align/permute_align_sm90_params.h"
#include "tileops/ops/moe/route_sort_sm90.cuh"

namespace tileops::permute_align {

using Params = PermuteAlignSm90Params;

/// Writes the chunk's routes to their rows; the first chunk also where the experts' rows lie.
__global__ void __launch_bounds__(device::kWarpThreads)
    place_routes(const __grid_constant__ Params p) {
  extern __shared__ int32_t counters[];
  route_sort::begin_kernel();
  if (p.sort.num_chunks == 1) route_sort::count_chunk(p.sort, counters);
  const bool first_chunk = blockIdx.x == 0;
  const auto start = [&](int expert, int begin, int count, int earlier) {
    if (first_chunk) {
      p.sort.begins[expert] = begin;
      p.sort.ends[expert] = begin + count;
    }
    return begin + earlier;
  };
  const int num_rows = route_sort::start_rows(p.sort, counters, start);
  if (first_chunk && device::lane_idx() == 0) {
    p.sort.begins[p.sort.num_experts] = num_rows;
    *p.num_padded_rows = num_rows;
  }
  route_sort::place_chunk(p.sort, counters, [&](int route, int expert, int row) {
    if (expert >= 0) p.sorted[row] = route;
  });
}

/// Writes the rows without a route, and the expert of each block.
__global__ void __launch_bounds__(kCtaThreads) mark_rows(const __grid_constant__ Params p) {
  route_sort::begin_kernel();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kCtaThreads + threadIdx.x;
  if (row >= p.num_rows) return;
  const int expert = route_sort::expert_of_row(p.sort, row);
  if (expert == p.sort.num_experts || row >= p.sort.ends[expert]) p.sorted[row] = p.sort.num_routes;
  if (row % p.sort.alignment == 0) p.block_experts[row / p.sort.alignment] = expert;
}

}  // namespace tileops::permute_align
