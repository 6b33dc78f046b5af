// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/fused_moe/fused_moe_settings.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_op.h"

namespace tileops {

/// FusedMoEFwdOp beside a shared expert that every token takes; the two outputs are not added.
/// Shapes: as FusedMoEFwdOp; shared_w_gate_up [2S, H], shared_w_down [H, S], together or absent,
///         whole on every rank: this one computes the share tp_rank of tp_size, and the ranks'
///         shared outputs add up. shared_output [T, H], absent without the shared weights;
///         routed_output [T, H].
/// Errors: as FusedMoEFwdOp.
/// Source: fused_moe_shared.yaml.
class FusedMoESharedExpertFwdOp : public TypedOp<FusedMoESharedExpertFwdOp> {
 public:
  static constexpr std::string_view kName = "FusedMoESharedExpertFwdOp";
  using delegate_types = DelegateTypes<Stage<"route_select", FusedTopKFwdOp>,
                                       Stage<"routed_experts", FusedMoEExpertsFwdOp>,
                                       Stage<"shared_expert", SharedExpertMLPFwdOp>>;
  static std::vector<std::string> injected() { return {"experts", "prepare_finalize"}; }

  explicit FusedMoESharedExpertFwdOp(const Routing& routing, const MoELayerSettings& settings = {},
                                     int64_t tp_size = 1, int64_t tp_rank = 0,
                                     OpOptions options = {});
  static std::shared_ptr<FusedMoESharedExpertFwdOp> from_params(const Params& params,
                                                                const OpOptions& options,
                                                                const Injected& injected = {});

  struct Optional {
    Tensor b_gate_up;
    Tensor b_down;
    Tensor correction_bias;
    Tensor shared_w_gate_up;
    Tensor shared_w_down;
    Tensor workspace;  // execution argument: FusedMoEExpertsFwdOp::workspace_bytes(…) or more
  };
  struct Output {
    Tensor shared_output;
    Tensor routed_output;
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
  Held<SharedExpertMLPFwdOp> shared_expert_;
};

}  // namespace tileops
