// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/fused_moe/fused_moe_settings.h"

namespace tileops {

/// The routed FFN of a layer: chooses experts by the gating logits, runs them, combines their
/// outputs.
/// Shapes: hidden_states [T, H]; gating_output [T, E], float32, float16 or bfloat16; w_gate_up [L,
///         2F, H]; w_down [L, H, F], L = num_local_experts or E; b_gate_up [L, 2F], b_down [L, H],
///         together or absent; correction_bias [E] float32 or absent; output [T, H]; topk_ids [T,
///         top_k] and tokens_per_expert [E] int32, where return_routing. hidden_states, weights and
///         biases: float16 or bfloat16, one for all. The scaling applies once, in the experts.
///         Where L < E and no prepare_finalize is injected, routes beyond the first L experts are
///         dropped.
/// Bits:   equal from run to run; with batch_invariant a token's are those that it has alone.
/// Errors: kValue (injected experts that contradict the parameters); kShape, kDType, kDevice (the
///         spec's checks); those of the stages and of prepare_finalize.
/// Source: fused_moe.yaml.
class FusedMoEFwdOp : public TypedOp<FusedMoEFwdOp> {
 public:
  static constexpr std::string_view kName = "FusedMoEFwdOp";
  using delegate_types = DelegateTypes<Stage<"route_select", FusedTopKFwdOp>,
                                       Stage<"routed_experts", FusedMoEExpertsFwdOp>>;
  static std::vector<std::string> injected() { return {"experts", "prepare_finalize"}; }

  explicit FusedMoEFwdOp(const Routing& routing, const MoELayerSettings& settings = {},
                         OpOptions options = {});
  static std::shared_ptr<FusedMoEFwdOp> from_params(const Params& params, const OpOptions& options,
                                                    const Injected& injected = {});

  struct Optional {
    Tensor b_gate_up;
    Tensor b_down;
    Tensor correction_bias;
    Tensor workspace;  // execution argument: FusedMoEExpertsFwdOp::workspace_bytes(…) or more
  };
  struct Output {
    Tensor output;
    Tensor topk_ids;  // both absent unless return_routing
    Tensor tokens_per_expert;
  };
  Output operator()(const Tensor& hidden_states, const Tensor& gating_output,
                    const Tensor& w_gate_up, const Tensor& w_down,
                    const Optional& optional = {}) const {
    return invoke(*this, hidden_states, gating_output, w_gate_up, w_down, optional);
  }
  static Output invoke(const Op& op, const Tensor& hidden_states, const Tensor& gating_output,
                       const Tensor& w_gate_up, const Tensor& w_down,
                       const Optional& optional = {});

 protected:
  Results forward(Call& call) const override;

 private:
  bool return_routing_;
  RoutedLayer routed_;
};

}  // namespace tileops
