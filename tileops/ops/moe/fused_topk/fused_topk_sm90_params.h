// SPDX-License-Identifier: Apache-2.0
// What the host passes to the router's GPU kernel: plain structs, read by NVRTC and by C++.
//
// Launch contract (kernel `tileops::fused_topk::route_tokens<T, kExpertsPerLane, kHasBias>` of
// fused_topk_sm90.cuh)
//   T         type of the logits: float, tileops::device::bf16, tileops::device::f16
//   grid      ceil(num_tokens / kTokensPerCta); CTA kTokensPerCta * 32 threads
//   smem      8 * kTokensPerCta * num_groups bytes where topk_group < num_groups, else 0
//   argument  one FusedTopKSm90Params by value; num_experts <= 32 * kExpertsPerLane
//   counts    all zero before the launch
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::fused_topk {

constexpr int32_t kTokensPerCta = 4;

struct FusedTopKSm90Params {
  const void* logits;
  int64_t logits_token_stride;  // strides in elements
  int64_t logits_expert_stride;
  const float* bias;  // of the experts; null without
  int64_t bias_stride;
  float* weights;   // [num_tokens, top_k]
  int32_t* ids;     // [num_tokens, top_k]
  int32_t* counts;  // [num_experts]; null: not wanted
  int64_t num_tokens;
  int32_t num_experts;
  int32_t top_k;
  int32_t num_groups;
  int32_t topk_group;
  int32_t is_softmax;
  int32_t renormalize;
  float scaling;
};

}  // namespace tileops::fused_topk
