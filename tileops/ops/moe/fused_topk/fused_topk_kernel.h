// SPDX-License-Identifier: Apache-2.0
// The router's kernel interface: what a call is, what a kernel gets.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/dispatch/call_fields.h"
#include "tileops/dispatch/implementation.h"
#include "tileops/ops/moe/routing.h"

namespace tileops::fused_topk {

/// What selection may depend on.
struct Call {
  Routing routing;
  DType dtype = DType::kF32;  // of the logits
  bool has_bias = false;
  bool counts_tokens = false;
  Device device;
  int64_t num_tokens = 0;
  int64_t num_experts = 0;
  bool expert_major = true;  // the logits have unit stride along E
  auto fields() const {
    return call_fields(field("routing", routing), field("dtype", dtype),
                       field("has_bias", has_bias), field("counts_tokens", counts_tokens),
                       field("device", device), field("num_tokens", num_tokens),
                       field("num_experts", num_experts), field("expert_major", expert_major));
  }
  bool operator==(const Call&) const = default;
  size_t hash() const;
  std::string to_string() const;
};

/// Tensors of one call, as the spec entry names them; correction_bias and tokens_per_expert may be
/// absent. Outputs are contiguous.
struct Args {
  const Tensor& gating_output;
  const Tensor& correction_bias;
  const Tensor& topk_weights;
  const Tensor& topk_ids;
  const Tensor& tokens_per_expert;
  std::array<Tensor, 5> tensors() const {
    return {gating_output, correction_bias, topk_weights, topk_ids, tokens_per_expert};
  }
};

/// Chooses and weights the experts of each token, as fused_topk_op.h says.
class FusedTopKKernel : public Kernel {
 public:
  virtual void run(const Args& args) const = 0;
};

struct FusedTopK {
  static constexpr std::string_view kName = "fused_topk";
  using Call = fused_topk::Call;
  using Args = fused_topk::Args;
  using Kernel = FusedTopKKernel;
};

/// The facts of a call as selection sees them.
Call make_call(const Routing& routing, const Args& args);

Implementation<FusedTopK> reference();
Implementation<FusedTopK> cpu_rows();
Implementation<FusedTopK> sm90_warp_per_token();

}  // namespace tileops::fused_topk
