// SPDX-License-Identifier: Apache-2.0
// What the host passes to the post-permutation's GPU kernel: plain structs, read by NVRTC and by
// C++.
//
// Launch contract (kernel `tileops::post_permute::combine_rows<In, Out, kVector>` of
// post_permute_sm90.cuh)
//   In, Out   float, tileops::device::bf16 or tileops::device::f16
//   kVector   columns are contiguous, both tensors' rows aligned to 16 bytes, hidden_size a
//             multiple of a vector (16 bytes of In)
//   grid      {num_tokens, column tiles}; CTA kCtaThreads; no dynamic shared memory
//   argument  one PostPermuteSm90Params by value
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::post_permute {

constexpr int32_t kCtaThreads = 128;

struct PostPermuteSm90Params {
  const void* rows;
  int64_t row_stride;  // strides in elements
  int64_t column_stride;
  int64_t slab_stride;
  const float* weights;  // [num_tokens, top_k]
  int64_t weights_token_stride;
  int64_t weights_choice_stride;
  const int32_t* inverse;  // [num_tokens * top_k]
  int64_t inverse_stride;
  void* out;  // [num_tokens, hidden_size]
  int64_t out_token_stride;
  int64_t out_column_stride;
  int64_t hidden_size;
  int64_t num_rows;
  int64_t rows_per_slab;
  int32_t has_slabs;  // rows lie in slabs of rows_per_slab, slab_stride apart
  int32_t top_k;
  float scaling;
};

}  // namespace tileops::post_permute
