// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_kernel.h"

namespace tileops {

/// The dense expert that every token takes: out = (silu(x·gateᵀ)·(x·upᵀ))·downᵀ, the activation
/// rounded to the inputs' dtype. Under tensor parallelism a rank gets all weights, computes its
/// share of the S columns, and the ranks' outs add up.
/// Shapes: hidden_states [T, H]; w_gate_up [2S, H], S gate rows first; w_down [H, S]; out [T, H].
///         dtype: float16 or bfloat16, one for all.
/// Bits:   equal from run to run; with batch_invariant a token's are those that it has alone.
/// Errors: kShape, kDType, kDevice, kValue (the spec's checks), kOpNotAvailable.
/// Source: shared_expert_mlp.yaml.
class SharedExpertMLPFwdOp : public TypedOp<SharedExpertMLPFwdOp> {
 public:
  static constexpr std::string_view kName = "SharedExpertMLPFwdOp";
  using interfaces = KernelInterfaces<shared_expert_mlp::SharedExpertMLP>;
  static std::vector<AnyImplementation> kernel_types();

  explicit SharedExpertMLPFwdOp(int64_t tp_size = 1, int64_t tp_rank = 0,
                                bool batch_invariant = false, OpOptions options = {});
  static std::shared_ptr<SharedExpertMLPFwdOp> from_params(const Params& params,
                                                           const OpOptions& options);

  Tensor operator()(const Tensor& hidden_states, const Tensor& w_gate_up, const Tensor& w_down,
                    const Tensor& out = {}) const {
    return invoke(*this, hidden_states, w_gate_up, w_down, out);
  }
  static Tensor invoke(const Op& op, const Tensor& hidden_states, const Tensor& w_gate_up,
                       const Tensor& w_down, const Tensor& out = {});

 protected:
  Results forward(Call& call) const override;

 private:
  shared_expert_mlp::Shard shard_;
  bool batch_invariant_;
};

}  // namespace tileops
