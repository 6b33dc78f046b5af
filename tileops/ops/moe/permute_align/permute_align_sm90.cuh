// SPDX-License-Identifier: Apache-2.0
// The block-aligned order on a GPU: a stable counting sort of the routes, then padding and blocks.
// The launch contract is in permute_align_sm90_params.h.
#pragma once

#include "tileops/ops/moe/permute_align/permute_align_sm90_params.h"
#include "tileops/ops/moe/route_sort_sm90.cuh"

namespace tileops::permute_align {

using Params = PermuteAlignSm90Params;

/// After route_sort::rank_routes: a thread writes a route to its row, a row without a route, and the
/// expert of a block.
__global__ void __launch_bounds__(kCtaThreads) fill_rows(const __grid_constant__ Params p) {
  route_sort::begin_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kCtaThreads + threadIdx.x;
  if (i == 0) *p.num_padded_rows = p.sort.begins[p.sort.num_experts];
  if (i < p.sort.num_routes) {
    const int route = static_cast<int>(i);
    const int expert = route_sort::expert_of(p.sort, route, p.sort.num_routes);
    if (expert >= 0) {
      p.sorted[p.sort.begins[expert] + route_sort::rank_of(p.sort, route, expert)] = route;
    }
  }
  if (i >= p.num_rows) return;
  const int expert = route_sort::expert_of_row(p.sort, i);
  const bool has_route =
      expert < p.sort.num_experts && i < p.sort.begins[expert] + p.sort.totals[expert];
  if (!has_route) p.sorted[i] = p.sort.num_routes;
  if (i % p.sort.alignment == 0) p.block_experts[i / p.sort.alignment] = expert;
}

}  // namespace tileops::permute_align
