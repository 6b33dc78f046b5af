// SPDX-License-Identifier: Apache-2.0
// What the host passes to the pre-permutation's GPU kernels: plain structs, read by NVRTC and by
// C++. All take one PrePermuteSm90Params by value, in namespace tileops::pre_permute:
//   kernel                grid, CTA, dynamic smem
//   count_routes          num_chunks, 128, 4 * num_experts    where num_chunks > 1
//   sum_chunks            ceil(num_experts / 4), 128, 0       where num_chunks > 1
//   place_routes          num_chunks, 32, 4 * num_experts
//   mark_rows             ceil(num_rows / 128), 128, 0        per_row layouts
//   copy_rows<Vector16>   {num_tokens, column tiles}, 128, 0  rows of both tensors aligned to 16
//   copy_rows<uint16_t>   the same                            any strides
// A chunk is chunk_routes consecutive routes; routes keep their order, so that the sort is stable.
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::pre_permute {

constexpr int32_t kCtaThreads = 128;
constexpr int32_t kExpertsPerCta = 4;  // of sum_chunks

enum class LayoutKind : int32_t { kEndRows, kPerRow, kMasked };

struct PrePermuteSm90Params {
  const int32_t* expert_ids;  // [num_tokens, top_k]
  int64_t ids_token_stride;   // strides in elements
  int64_t ids_choice_stride;
  const void* hidden;  // [num_tokens, hidden_size] of 16-bit elements
  int64_t hidden_token_stride;
  int64_t hidden_stride;
  void* expert_input;  // [num_rows, hidden_size]
  int32_t* metadata;
  int32_t* inverse;       // [num_tokens * top_k]
  int32_t* chunk_counts;  // [num_experts, num_chunks]; then sums over the chunks before
  int32_t* totals;        // [num_experts]
  int32_t* begins;        // [num_experts + 1]: first rows of the experts; per_row layouts
  int64_t hidden_size;
  int64_t num_rows;
  int32_t num_routes;
  int32_t top_k;
  int32_t num_experts;
  int32_t num_chunks;
  int32_t chunk_routes;  // a multiple of 128
  LayoutKind layout;
  int32_t alignment;
  int32_t max_m;
};

}  // namespace tileops::pre_permute
