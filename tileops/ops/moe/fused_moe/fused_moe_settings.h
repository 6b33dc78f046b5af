// SPDX-License-Identifier: Apache-2.0
// What the two routed layers, FusedMoEFwdOp and FusedMoESharedExpertFwdOp, have in common.
#pragma once

#include <memory>
#include <optional>

#include "tileops/op/op.h"
#include "tileops/ops/moe/activation.h"
#include "tileops/ops/moe/fused_experts/fused_experts_op.h"
#include "tileops/ops/moe/fused_topk/fused_topk_op.h"
#include "tileops/ops/moe/prepare_finalize.h"
#include "tileops/ops/moe/routing.h"

namespace tileops {

/// What a layer fixes beside its routing.
struct MoELayerSettings {
  GatedActivation activation = GatedActivation::silu_and_mul;
  std::optional<int64_t> num_local_experts = std::nullopt;  // of this rank; none: all
  bool return_routing = false;
  bool batch_invariant = false;
  /// Instead of the experts that the layer builds: a FusedMoEExpertsFwdOp or what may stand for
  /// one.
  std::shared_ptr<Op> experts = nullptr;
  /// Instead of the local one, which exchanges nothing.
  std::shared_ptr<const PrepareFinalize> prepare_finalize = nullptr;
};

/// The spec's parameters of a layer, in its order (injected instances aside), and back, with those:
/// `experts`, a shared_ptr<Op>, and `prepare_finalize`, a shared_ptr<const PrepareFinalize>. Errors:
/// kType.
Params layer_params(const Routing& routing, const MoELayerSettings& settings);
MoELayerSettings layer_settings(const Params& params, const Injected& injected);
/// The router's part: the experts apply the scaling, once.
Routing router_routing(const Routing& routing);
ExpertsSettings experts_settings(const Routing& routing, const MoELayerSettings& settings);
/// Errors: kValue, naming the parameter of the injected experts that contradicts the layer's.
void check_injected_experts(std::string_view op, const Routing& routing,
                            const MoELayerSettings& settings);

/// Inputs of the routed part of a layer; correction_bias and the biases may be absent.
struct RoutedLayerInputs {
  const Tensor& hidden_states;
  const Tensor& gating_output;
  const Tensor& w_gate_up;
  const Tensor& w_down;
  const Tensor& b_gate_up;
  const Tensor& b_down;
  const Tensor& correction_bias;
};

/// Routes, prepares, runs the experts and finalizes.
struct RoutedLayer {
  Held<FusedTopKFwdOp> route_select;
  Held<FusedMoEExpertsFwdOp> routed_experts;
  std::shared_ptr<const PrepareFinalize> prepare_finalize;
  bool runs_others_code = false;  // experts or prepare_finalize were injected

  struct Output {
    Tensor output;
    Tensor topk_ids;
    Tensor tokens_per_expert;  // absent unless the router counts
  };
  Output operator()(const RoutedLayerInputs& inputs) const;
};

}  // namespace tileops
