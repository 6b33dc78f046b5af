// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_experts/fused_experts_op.h"

#include <algorithm>

#include "tileops/core/check.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/launch_together.h"
#include "tileops/ops/moe/op_params.h"
#include "tileops/ops/moe/workspace.h"

namespace tileops {
namespace {

/// Where a GPU takes the indexed path if it is not forced or forbidden: bench/notes/hopper_moe.md.
constexpr std::string_view kFewRoutesOnGpu =
    "T * K <= min(64, 4 * E) and min(T * K, E) * H * F <= 600000000";

const MGroupedLayout kLayout = MGroupedLayout::tight_physical_psum();

const char* small_route_name(SmallRoute small_route) {
  switch (small_route) {
    case SmallRoute::kAlways:
      return "always";
    case SmallRoute::kNever:
      return "never";
    default:
      return "auto";
  }
}

SmallRoute small_route_of(const Params& params) {
  const Value* value = params.find("small_route");
  if (value == nullptr || *value == Value("auto")) return SmallRoute::kAuto;
  if (*value == Value("always")) return SmallRoute::kAlways;
  TILEOPS_CHECK(ErrorKind::kValue, *value == Value("never"),
                "small_route must be auto, always or never, got {}", to_string(*value));
  return SmallRoute::kNever;
}

/// Whether a GPU's streaming kernel can read the rows.
bool can_stream(const Tensor& rows) {
  constexpr int64_t kStep = 8, kAlignment = 16;
  return rows.size(-1) % kStep == 0 && is_inner_contiguous(rows) &&
         alignment_of(rows) >= kAlignment;
}

int64_t permuted_path_bytes(int64_t num_routes, int64_t num_experts, int64_t hidden,
                            int64_t inter) {
  return 256 + padded_bytes(4 * num_routes) + padded_bytes(4 * num_experts) +
         2 * padded_bytes(2 * num_routes * hidden) + padded_bytes(2 * num_routes * inter);
}

std::optional<RoutingEpilogue> epilogue_of(double routed_scaling_factor) {
  if (routed_scaling_factor == 1.0) return std::nullopt;
  return RoutingEpilogue{routed_scaling_factor};
}

}  // namespace

FusedMoEExpertsFwdOp::FusedMoEExpertsFwdOp(const ExpertsSettings& settings, OpOptions options)
    : TypedOp({{"routed_scaling_factor", settings.routed_scaling_factor},
               {"activation", settings.activation.to_value()},
               {"small_route", small_route_name(settings.small_route)},
               {"batch_invariant", settings.batch_invariant}},
              std::move(options)),
      settings_(settings),
      num_experts_(signature(), "E"),
      few_routes_on_gpu_(signature(), kFewRoutesOnGpu) {
  expert_mlp_ = delegate_for<"expert_mlp">(settled, nullptr, kLayout, settings.activation,
                                           settings.batch_invariant);
  post_permute_ = delegate_for<"post_permute">(
      settled, nullptr, kLayout, epilogue_of(settings.routed_scaling_factor), std::nullopt);
  if (settings.small_route != SmallRoute::kNever) {
    indexed_small_route_ =
        delegate_for<"indexed_small_route">(settled, nullptr, settings.routed_scaling_factor,
                                            settings.activation, settings.batch_invariant);
  }
}

std::shared_ptr<FusedMoEExpertsFwdOp> FusedMoEExpertsFwdOp::from_params(const Params& params,
                                                                        const OpOptions& options) {
  ExpertsSettings settings{
      .routed_scaling_factor = float_param(params, "routed_scaling_factor", 1.0),
      .small_route = small_route_of(params),
      .batch_invariant = bool_param(params, "batch_invariant", false)};
  if (const Value* activation = params.find("activation")) {
    settings.activation = GatedActivation::from_value(*activation);
  }
  return std::make_shared<FusedMoEExpertsFwdOp>(settings, options);
}

Tensor FusedMoEExpertsFwdOp::invoke(const Op& op, const Tensor& hidden_states,
                                    const Tensor& topk_weights, const Tensor& topk_ids,
                                    const Tensor& w_gate_up, const Tensor& w_down,
                                    const Optional& optional) {
  const WorkspaceScope scope(optional.workspace);
  const Tensor* inputs[] = {&hidden_states, &topk_weights,       &topk_ids,       &w_gate_up,
                            &w_down,        &optional.b_gate_up, &optional.b_down};
  const Tensor* outs[] = {&optional.output};
  return op.call({inputs, outs}).take(0);
}

int64_t FusedMoEExpertsFwdOp::workspace_bytes(int64_t num_tokens, int64_t top_k,
                                              int64_t num_experts, int64_t hidden, int64_t inter) {
  const int64_t num_routes = num_tokens * top_k;
  return std::max(permuted_path_bytes(num_routes, num_experts, hidden, inter),
                  IndexedExpertMLPFwdOp::workspace_bytes(num_routes, hidden, inter));
}

/// On the CPU the indexed path is as fast for any number of routes and takes a third of the memory.
/// Batch invariance keeps to one path of a device, whatever the number of routes.
bool FusedMoEExpertsFwdOp::takes_indexed_path(Call& call) const {
  if (settings_.small_route != SmallRoute::kAuto)
    return settings_.small_route == SmallRoute::kAlways;
  if (call.device().type == DeviceType::kCPU) return true;
  if (settings_.batch_invariant) return false;
  return can_stream(call.input(0)) && can_stream(call.input(3)) && can_stream(call.input(4)) &&
         call.depends_on(few_routes_on_gpu_) != 0;
}

Results FusedMoEExpertsFwdOp::forward(Call& call) const {
  const Tensor &hidden_states = call.input(0), &topk_weights = call.input(1),
               &topk_ids = call.input(2);
  const Tensor &w_gate_up = call.input(3), &w_down = call.input(4);
  const int64_t num_routes = topk_ids.num_elements(), hidden = w_down.shape()[1];
  const int64_t inter = w_down.shape()[2];
  const bool is_indexed = takes_indexed_path(call);
  Tensor output = call.out();
  std::optional<IntermediatesGuard> intermediates;
  if (CallMode::current() == nullptr) {  // a graph allocates for itself
    output = call.output();
    const int64_t indexed_bytes = IndexedExpertMLPFwdOp::workspace_bytes(num_routes, hidden, inter);
    const int64_t permuted_bytes =
        permuted_path_bytes(num_routes, w_gate_up.shape()[0], hidden, inter);
    const int64_t kept_bytes = is_indexed ? indexed_bytes : permuted_bytes;
    const bool is_given = WorkspaceScope::current().defined();
    intermediates.emplace(kName.data(), call.device(),
                          is_given ? std::max(indexed_bytes, permuted_bytes) : kept_bytes);
  }
  if (is_indexed) {
    return {indexed_small_route_(
        hidden_states, topk_weights, topk_ids, w_gate_up, w_down,
        IndexedExpertMLPFwdOp::Optional{call.input(5), call.input(6), output})};
  }
  const int64_t num_experts = call.depends_on(num_experts_);
  const auto pre_permute = delegate_for<"pre_permute">(num_experts, nullptr, kLayout, num_experts);
  return launch_together(call, [&]() -> Results {
    const MoEPrePermuteFwdOp::Output permuted = pre_permute(hidden_states, topk_ids);
    const Tensor expert_output = expert_mlp_(
        permuted.expert_input, w_gate_up, w_down, permuted.layout_metadata,
        MoEExpertMLPFwdOp::Optional{.b_gate_up = call.input(5), .b_down = call.input(6)});
    return {post_permute_(expert_output, topk_weights, permuted.inverse_indices, output)};
  });
}

}  // namespace tileops
