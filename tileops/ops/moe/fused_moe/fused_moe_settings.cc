// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_moe/fused_moe_settings.h"

#include "tileops/core/check.h"
#include "tileops/ops/moe/op_params.h"

namespace tileops {

Params layer_params(const Routing& routing, const MoELayerSettings& settings) {
  Params params = routing.to_params();
  params.set("activation", settings.activation.to_value());
  params.set("num_local_experts",
             settings.num_local_experts ? Value(*settings.num_local_experts) : Value());
  params.set("return_routing", settings.return_routing);
  params.set("batch_invariant", settings.batch_invariant);
  return params;
}

MoELayerSettings layer_settings(const Params& params, const Injected& injected) {
  MoELayerSettings settings{.return_routing = bool_param(params, "return_routing", false),
                            .batch_invariant = bool_param(params, "batch_invariant", false)};
  if (const Value* activation = params.find("activation")) {
    settings.activation = GatedActivation::from_value(*activation);
  }
  const Value* local = params.find("num_local_experts");
  if (local != nullptr && !local->is_none())
    settings.num_local_experts = int_param(params, "num_local_experts", 0);
  settings.experts = injected.get<std::shared_ptr<Op>>("experts");
  settings.prepare_finalize =
      injected.get<std::shared_ptr<const PrepareFinalize>>("prepare_finalize");
  return settings;
}

Routing router_routing(const Routing& routing) {
  Routing unscaled = routing;
  unscaled.routed_scaling_factor = 1.0;
  return unscaled;
}

ExpertsSettings experts_settings(const Routing& routing, const MoELayerSettings& settings) {
  return {.routed_scaling_factor = routing.routed_scaling_factor,
          .activation = settings.activation,
          .batch_invariant = settings.batch_invariant};
}

void check_injected_experts(std::string_view op, const Routing& routing,
                            const MoELayerSettings& settings) {
  if (settings.experts == nullptr) return;
  const Params wanted{{"activation", settings.activation.to_value()},
                      {"routed_scaling_factor", routing.routed_scaling_factor},
                      {"batch_invariant", settings.batch_invariant}};
  for (const auto& [name, value] : wanted) {
    const Value* theirs = settings.experts->params().find(name);
    TILEOPS_CHECK(ErrorKind::kValue, theirs == nullptr || *theirs == value,
                  "{}: {} is {}, and that of the injected experts ({}) {}; give both the same", op,
                  name, to_string(value), settings.experts->name(), to_string(*theirs));
  }
}

RoutedLayer::Output RoutedLayer::operator()(const RoutedLayerInputs& inputs) const {
  FusedTopKFwdOp::Output routes = route_select(inputs.gating_output, inputs.correction_bias);
  RoutedTokens tokens{inputs.hidden_states, std::move(routes.topk_weights),
                      std::move(routes.topk_ids)};
  const PrepareFinalize::Prepared prepared =
      prepare_finalize->prepare(tokens, inputs.gating_output.shape()[1]);
  const RoutedTokens& local = prepared.tokens;
  const Tensor expert_output = routed_experts(
      local.hidden_states, local.topk_weights, local.topk_ids, inputs.w_gate_up, inputs.w_down,
      FusedMoEExpertsFwdOp::Optional{.b_gate_up = inputs.b_gate_up, .b_down = inputs.b_down});
  Tensor output = prepare_finalize->finalize(expert_output, prepared, tokens);
  return {std::move(output), std::move(tokens.topk_ids), std::move(routes.tokens_per_expert)};
}

}  // namespace tileops
