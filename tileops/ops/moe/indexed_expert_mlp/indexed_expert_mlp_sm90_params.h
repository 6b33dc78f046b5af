// SPDX-License-Identifier: Apache-2.0
// What the host passes to the indexed experts' GPU kernels: plain structs, read by NVRTC and by
// C++. All take one IndexedSm90Params by value, in namespace tileops::indexed_expert_mlp; T is
// tileops::device::bf16 or tileops::device::f16:
//   kernel             grid, CTA, dynamic smem
//   stream_experts<T>  as many as SMs, kStreamThreads, kStreamSmemBytes
//   gate_up_rows<T>    any, kWarpsPerCta * 32, 0
//   combine_rows<T>    any, kWarpsPerCta * 32, 0; after gate_up_rows
// stream_experts: at most kMaxRoutes routes; hidden_size and inter multiples of 8 above 0; x and
// weights contiguous along K, their rows aligned to 16 bytes; counters zero before the first launch,
// which the kernel leaves zero. gate_up_rows and combine_rows serve everything.
#pragma once

#include "tileops/device/epilogue/activation_kind.h"

namespace tileops::indexed_expert_mlp {

constexpr int32_t kMaxRoutes = 256;
constexpr int32_t kMathWarps = 8;
constexpr int32_t kLoadWarps = 3;
constexpr int32_t kStreamThreads = (kLoadWarps + kMathWarps) * 32;
constexpr int32_t kWarpsPerCta = 8;
constexpr int32_t kCounters = 2;
constexpr int64_t kStreamSmemBytes = 219 << 10;

/// Rows of a matrix, or of one a expert: strides in elements.
struct RowsView {
  const void* data;
  int64_t expert_stride;  // 0: no experts
  int64_t row_stride;
  int64_t column_stride;
};

struct IndexedSm90Params {
  RowsView x;          // [num_tokens, hidden_size]
  RowsView weights;    // float [num_tokens, top_k]
  RowsView ids;        // int32 [num_tokens, top_k]
  RowsView w_gate_up;  // [num_experts, 2 * inter, hidden_size]
  RowsView w_down;     // [num_experts, hidden_size, inter]
  RowsView b_gate_up;  // [num_experts, 2 * inter]; null: no biases
  RowsView b_down;     // [num_experts, hidden_size]
  void* out;           // [num_tokens, hidden_size]
  int64_t out_row_stride;
  int64_t out_column_stride;
  void* activated;     // scratch [routes, inter]
  uint32_t* counters;  // kCounters
  int64_t num_tokens;
  int32_t top_k;
  int32_t num_experts;
  int32_t hidden_size;
  int32_t inter;
  device::ActivationParams activation;
  float scaling;
};

}  // namespace tileops::indexed_expert_mlp
