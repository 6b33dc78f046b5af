// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_op.h"

#include <algorithm>
#include <utility>

#include "tileops/core/check.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/op_params.h"
#include "tileops/ops/moe/workspace.h"

namespace tileops {
namespace indexed_expert_mlp {

size_t Call::hash() const { return hash_fields(*this); }

std::string Call::to_string() const {
  return fmt::format("{}, {}, T {}, K {}, E {}, H {}, F {}{}{}",
                     tileops::to_string(activation.to_value()), dtype_short_name(dtype), num_tokens,
                     top_k, num_experts, hidden, inter, has_bias ? ", bias" : "",
                     batch_invariant ? ", batch invariant" : "");
}

Call make_call(const Settings& settings, const Args& args) {
  return {.activation = settings.activation,
          .routed_scaling_factor = settings.routed_scaling_factor,
          .batch_invariant = settings.batch_invariant,
          .dtype = args.hidden_states.dtype(),
          .has_bias = args.b_gate_up.defined(),
          .device = args.hidden_states.device(),
          .num_tokens = args.topk_ids.shape()[0],
          .top_k = args.topk_ids.shape()[1],
          .num_experts = args.w_down.shape()[0],
          .hidden = args.w_down.shape()[1],
          .inter = args.w_down.shape()[2],
          .k_major = is_inner_contiguous(args.hidden_states) &&
                     is_inner_contiguous(args.w_gate_up) && is_inner_contiguous(args.w_down),
          .out_contiguous = is_inner_contiguous(args.out),
          .hidden_alignment = alignment_of(args.hidden_states),
          .weights_alignment = std::min(alignment_of(args.w_gate_up), alignment_of(args.w_down))};
}

Settings settings_of(const Call& call) {
  return {call.activation, call.routed_scaling_factor, call.batch_invariant};
}

Value identity_of(const Settings& settings) {
  return Value::List{settings.activation.to_value(), settings.routed_scaling_factor,
                     settings.batch_invariant};
}

int64_t held_columns(int64_t num_rows, int64_t hidden) {
  constexpr int64_t kBytes = 8 << 20, kMinColumns = 512;
  const int64_t fitting = kBytes / (std::max<int64_t>(num_rows, 1) * 2) / 32 * 32;
  return std::clamp<int64_t>(fitting, std::min(kMinColumns, hidden), std::max<int64_t>(hidden, 1));
}

}  // namespace indexed_expert_mlp

int64_t IndexedExpertMLPFwdOp::workspace_bytes(int64_t num_routes, int64_t hidden, int64_t inter) {
  const int64_t held = indexed_expert_mlp::held_columns(num_routes, hidden);
  return 256 + padded_bytes(4 * num_routes) + padded_bytes(2 * num_routes * inter) +
         padded_bytes(2 * num_routes * held);
}

IndexedExpertMLPFwdOp::IndexedExpertMLPFwdOp(double routed_scaling_factor,
                                             GatedActivation activation, bool batch_invariant,
                                             OpOptions options)
    : TypedOp({{"routed_scaling_factor", routed_scaling_factor},
               {"activation", activation.to_value()},
               {"batch_invariant", batch_invariant}},
              std::move(options)),
      settings_{activation, routed_scaling_factor, batch_invariant} {}

std::shared_ptr<IndexedExpertMLPFwdOp> IndexedExpertMLPFwdOp::from_params(
    const Params& params, const OpOptions& options) {
  const Value* activation = params.find("activation");
  return std::make_shared<IndexedExpertMLPFwdOp>(
      float_param(params, "routed_scaling_factor", 1.0),
      activation == nullptr ? GatedActivation::silu_and_mul
                            : GatedActivation::from_value(*activation),
      bool_param(params, "batch_invariant", false), options);
}

std::vector<AnyImplementation> IndexedExpertMLPFwdOp::kernel_types() {
  return {erase(indexed_expert_mlp::reference()), erase(indexed_expert_mlp::cpu_segments()),
          erase(indexed_expert_mlp::sm90_stream()), erase(indexed_expert_mlp::sm90_rows())};
}

Tensor IndexedExpertMLPFwdOp::invoke(const Op& op, const Tensor& hidden_states,
                                     const Tensor& topk_weights, const Tensor& topk_ids,
                                     const Tensor& w_gate_up, const Tensor& w_down,
                                     const Optional& optional) {
  const Tensor* inputs[] = {&hidden_states, &topk_weights,       &topk_ids,       &w_gate_up,
                            &w_down,        &optional.b_gate_up, &optional.b_down};
  const Tensor* outs[] = {&optional.out};
  return op.call({inputs, outs}).take(0);
}

Results IndexedExpertMLPFwdOp::forward(Call& call) const {
  Tensor out = call.output();
  const indexed_expert_mlp::Args args{call.input(0), call.input(1), call.input(2), call.input(3),
                                      call.input(4), call.input(5), call.input(6), out};
  kernel_for<indexed_expert_mlp::IndexedExpertMLP>(call, make_call(settings_, args)).run(args);
  return {std::move(out)};
}

}  // namespace tileops
