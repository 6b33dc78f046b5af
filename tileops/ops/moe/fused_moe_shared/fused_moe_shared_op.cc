// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_moe_shared/fused_moe_shared_op.h"

#include "tileops/ops/moe/launch_together.h"
#include "tileops/ops/moe/op_params.h"
#include "tileops/ops/moe/workspace.h"

namespace tileops {
namespace {

Params with_shard(Params params, int64_t tp_size, int64_t tp_rank) {
  params.set("tp_size", tp_size);
  params.set("tp_rank", tp_rank);
  return params;
}

}  // namespace

FusedMoESharedExpertFwdOp::FusedMoESharedExpertFwdOp(const Routing& routing,
                                                     const MoELayerSettings& settings,
                                                     int64_t tp_size, int64_t tp_rank,
                                                     OpOptions options)
    : TypedOp(with_shard(layer_params(routing, settings), tp_size, tp_rank), std::move(options)),
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
  shared_expert_ =
      delegate_for<"shared_expert">(settled, nullptr, tp_size, tp_rank, settings.batch_invariant);
}

std::shared_ptr<FusedMoESharedExpertFwdOp> FusedMoESharedExpertFwdOp::from_params(
    const Params& params, const OpOptions& options, const Injected& injected) {
  return std::make_shared<FusedMoESharedExpertFwdOp>(
      Routing::from_params(params), layer_settings(params, injected),
      int_param(params, "tp_size", 1), int_param(params, "tp_rank", 0), options);
}

FusedMoESharedExpertFwdOp::Output FusedMoESharedExpertFwdOp::invoke(
    const Op& op, const Tensor& hidden_states, const Tensor& gating_output, const Tensor& w_gate_up,
    const Tensor& w_down, const Optional& optional) {
  const WorkspaceScope scope(optional.workspace);
  const Tensor* inputs[] = {&hidden_states,
                            &gating_output,
                            &w_gate_up,
                            &w_down,
                            &optional.b_gate_up,
                            &optional.b_down,
                            &optional.correction_bias,
                            &optional.shared_w_gate_up,
                            &optional.shared_w_down};
  Results results = op.call({inputs, {}});
  return {results.take(0), results.take(1), results.take(2), results.take(3)};
}

Results FusedMoESharedExpertFwdOp::forward(Call& call) const {
  const Tensor& shared_w_gate_up = call.input(7);
  Tensor shared_output;
  RoutedLayer::Output routed = launch_together(
      call,
      [&] {
        if (shared_w_gate_up.defined()) {
          shared_output = shared_expert_(call.input(0), shared_w_gate_up, call.input(8));
        }
        return routed_({call.input(0), call.input(1), call.input(2), call.input(3), call.input(4),
                        call.input(5), call.input(6)});
      },
      routed_.runs_others_code);
  if (!return_routing_) {
    return {std::move(shared_output), std::move(routed.output), Tensor(), Tensor()};
  }
  return {std::move(shared_output), std::move(routed.output), std::move(routed.topk_ids),
          std::move(routed.tokens_per_expert)};
}

}  // namespace tileops
