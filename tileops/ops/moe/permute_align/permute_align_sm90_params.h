// SPDX-License-Identifier: Apache-2.0
// What the host passes to the block-aligned order's GPU kernels: plain structs, read by NVRTC and by
// C++. First route_sort::rank_routes, then, with one PermuteAlignSm90Params by value, in namespace
// tileops::permute_align:
//   kernel     grid, CTA, dynamic smem
//   fill_rows  ceil(max(1, num_rows, num_routes) / 128), 128, 0
#pragma once

#include "tileops/ops/moe/route_sort_sm90_params.h"

namespace tileops::permute_align {

constexpr int32_t kCtaThreads = 128;

struct PermuteAlignSm90Params {
  route_sort::RouteSortParams sort;  // alignment: the size of a block
  int32_t* sorted;                   // [num_rows]
  int32_t* block_experts;            // [ceil(num_rows / alignment)]
  int32_t* num_padded_rows;          // [1]
  int64_t num_rows;
};

}  // namespace tileops::permute_align
