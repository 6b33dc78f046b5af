// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/activation.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_kernel.h"

namespace tileops {

/// The routed experts by index: each distinct expert's weights are read once, rows are
/// gathered by index, no permutation is materialised. out[t] = scale · Σ_k topk_weights[t, k] ·
/// (act(x·gateᵀ, x·upᵀ)·downᵀ + b_down)(expert of (t, k)), k rising, float32.
/// Shapes: hidden_states [T, H]; topk_weights [T, K] float32; topk_ids [T, K] int32; w_gate_up [E,
///         2F, H]; w_down [E, H, F]; b_gate_up [E, 2F], b_down [E, H], together or absent; out [T,
///         H]. dtype: float16 or bfloat16, one for all. Ids outside [0, E) are dropped.
/// Bits:   equal from run to run; with batch_invariant a token's are those that it has alone.
/// Errors: kShape, kDType, kDevice, kValue (the spec's checks), kOpNotAvailable.
/// Source: indexed_expert_mlp.yaml.
class IndexedExpertMLPFwdOp : public TypedOp<IndexedExpertMLPFwdOp> {
 public:
  static constexpr std::string_view kName = "IndexedExpertMLPFwdOp";
  using interfaces = KernelInterfaces<indexed_expert_mlp::IndexedExpertMLP>;
  static std::vector<AnyImplementation> kernel_types();

  /// Bytes of workspace that hold the intermediates of a call of so many routes.
  static int64_t workspace_bytes(int64_t num_routes, int64_t hidden, int64_t inter);

  explicit IndexedExpertMLPFwdOp(double routed_scaling_factor = 1.0,
                                 GatedActivation activation = GatedActivation::silu_and_mul,
                                 bool batch_invariant = false, OpOptions options = {});
  static std::shared_ptr<IndexedExpertMLPFwdOp> from_params(const Params& params,
                                                            const OpOptions& options);

  struct Optional {
    Tensor b_gate_up;
    Tensor b_down;
    Tensor out;
  };
  Tensor operator()(const Tensor& hidden_states, const Tensor& topk_weights, const Tensor& topk_ids,
                    const Tensor& w_gate_up, const Tensor& w_down,
                    const Optional& optional = {}) const {
    return invoke(*this, hidden_states, topk_weights, topk_ids, w_gate_up, w_down, optional);
  }
  static Tensor invoke(const Op& op, const Tensor& hidden_states, const Tensor& topk_weights,
                       const Tensor& topk_ids, const Tensor& w_gate_up, const Tensor& w_down,
                       const Optional& optional = {});

 protected:
  Results forward(Call& call) const override;

 private:
  indexed_expert_mlp::Settings settings_;
};

}  // namespace tileops
