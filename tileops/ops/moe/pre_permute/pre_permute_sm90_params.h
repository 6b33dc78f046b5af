// SPDX-License-Identifier: Apache-2.0
// What the host passes to the pre-permutation's GPU kernels: plain structs, read by NVRTC and by
// C++. First route_sort::rank_routes, then, with one PrePermuteSm90Params by value, in namespace
// tileops::pre_permute:
//   kernel                grid, CTA, dynamic smem
//   copy_rows<Vector16>   {num_tokens + ceil(metadata / 128), column tiles}, 128, 0
//                                             rows of both tensors aligned to 16
//   copy_rows<uint16_t>   the same            any strides
// or alone, where 0 < num_routes <= kFewRoutes, top_k <= kFewTopK, the ids are contiguous, alignment
// is 1 and the layout is not per_row:
//   permute_few<Unit>     {num_tokens + ceil(num_experts / 128), column tiles}, 128, 0
#pragma once

#include "tileops/ops/moe/route_sort_sm90_params.h"

namespace tileops::pre_permute {

constexpr int32_t kCtaThreads = 128;
constexpr int32_t kFewRoutes = 2048;
constexpr int32_t kFewTopK = 256;

enum class LayoutKind : int32_t { kEndRows, kPerRow, kMasked };

struct PrePermuteSm90Params {
  route_sort::RouteSortParams sort;
  const void* hidden;           // [num_tokens, hidden_size] of 16-bit elements
  int64_t hidden_token_stride;  // strides in elements
  int64_t hidden_stride;
  void* expert_input;  // [num_rows, hidden_size]
  int32_t* metadata;   // [num_experts], of per_row layouts [num_rows]
  int32_t* inverse;    // [num_tokens * top_k]
  int64_t num_tokens;
  int64_t hidden_size;
  int64_t num_rows;
  LayoutKind layout;
  int32_t max_m;
};

}  // namespace tileops::pre_permute
