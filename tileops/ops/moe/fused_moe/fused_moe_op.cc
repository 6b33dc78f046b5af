// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"

#include "tileops/ops/moe/launch_together.h"
#include "tileops/ops/moe/workspace.h"

namespace tileops {

FusedMoEFwdOp::FusedMoEFwdOp(const Routing& routing, const MoELayerSettings& settings,
                             OpOptions options)
    : TypedOp(layer_params(routing, settings), std::move(options)),
      return_routing_(settings.return_routing) {
  check_injected_experts(name(), routing, settings);
  routed_.route_select =
      delegate_for<"route_select">(settled, nullptr, router_routing(routing), return_routing_);
  routed_.routed_experts = delegate_for<"routed_experts">(settled, settings.experts,
                                                          experts_settings(routing, settings));
  routed_.runs_others_code = settings.experts != nullptr || settings.prepare_finalize != nullptr;
  routed_.prepare_finalize = settings.prepare_finalize != nullptr
                                 ? settings.prepare_finalize
                                 : std::make_shared<LocalPrepareFinalize>();
}

std::shared_ptr<FusedMoEFwdOp> FusedMoEFwdOp::from_params(const Params& params,
                                                          const OpOptions& options,
                                                          const Injected& injected) {
  return std::make_shared<FusedMoEFwdOp>(Routing::from_params(params),
                                         layer_settings(params, injected), options);
}

FusedMoEFwdOp::Output FusedMoEFwdOp::invoke(const Op& op, const Tensor& hidden_states,
                                            const Tensor& gating_output, const Tensor& w_gate_up,
                                            const Tensor& w_down, const Optional& optional) {
  const WorkspaceScope scope(optional.workspace);
  const Tensor* inputs[] = {
      &hidden_states,   &gating_output,           &w_gate_up, &w_down, &optional.b_gate_up,
      &optional.b_down, &optional.correction_bias};
  Results results = op.call({inputs, {}});
  return {results.take(0), results.take(1), results.take(2)};
}

Results FusedMoEFwdOp::forward(Call& call) const {
  RoutedLayer::Output routed = launch_together(
      call,
      [&] {
        return routed_({call.input(0), call.input(1), call.input(2), call.input(3), call.input(4),
                        call.input(5), call.input(6)});
      },
      routed_.runs_others_code);
  if (!return_routing_) return {std::move(routed.output), Tensor(), Tensor()};
  return {std::move(routed.output), std::move(routed.topk_ids),
          std::move(routed.tokens_per_expert)};
}

}  // namespace tileops
