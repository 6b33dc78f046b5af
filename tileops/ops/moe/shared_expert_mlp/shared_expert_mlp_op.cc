// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_op.h"

#include <algorithm>
#include <utility>

#include "tileops/core/check.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/op_params.h"

namespace tileops {
namespace shared_expert_mlp {

size_t Call::hash() const { return hash_fields(*this); }

std::string Call::to_string() const {
  return fmt::format("{}, T {}, H {}, S {}, rank {} of {}{}", dtype_short_name(dtype), num_tokens,
                     hidden, inter, shard.tp_rank, shard.tp_size,
                     batch_invariant ? ", batch invariant" : "");
}

Call make_call(const Shard& shard, bool batch_invariant, const Args& args) {
  return {.shard = shard,
          .batch_invariant = batch_invariant,
          .dtype = args.hidden_states.dtype(),
          .device = args.hidden_states.device(),
          .num_tokens = args.hidden_states.shape()[0],
          .hidden = args.w_down.shape()[0],
          .inter = args.w_down.shape()[1],
          .k_major = is_inner_contiguous(args.hidden_states) &&
                     is_inner_contiguous(args.w_gate_up) && is_inner_contiguous(args.w_down),
          .out_contiguous = is_inner_contiguous(args.out),
          .expanded = is_expanded(args.hidden_states) || is_expanded(args.w_gate_up) ||
                      is_expanded(args.w_down),
          .hidden_alignment = alignment_of(args.hidden_states),
          .weights_alignment = std::min(alignment_of(args.w_gate_up), alignment_of(args.w_down)),
          .out_alignment = alignment_of(args.out)};
}

}  // namespace shared_expert_mlp

SharedExpertMLPFwdOp::SharedExpertMLPFwdOp(int64_t tp_size, int64_t tp_rank, bool batch_invariant,
                                           OpOptions options)
    : TypedOp({{"tp_size", tp_size}, {"tp_rank", tp_rank}, {"batch_invariant", batch_invariant}},
              std::move(options)),
      shard_{tp_size, tp_rank},
      batch_invariant_(batch_invariant) {}

std::shared_ptr<SharedExpertMLPFwdOp> SharedExpertMLPFwdOp::from_params(const Params& params,
                                                                        const OpOptions& options) {
  return std::make_shared<SharedExpertMLPFwdOp>(
      int_param(params, "tp_size", 1), int_param(params, "tp_rank", 0),
      bool_param(params, "batch_invariant", false), options);
}

std::vector<AnyImplementation> SharedExpertMLPFwdOp::kernel_types() {
  return {erase(shared_expert_mlp::reference()), erase(shared_expert_mlp::cpu_blocked()),
          erase(shared_expert_mlp::sm90_weights_on_m()), erase(shared_expert_mlp::sm90_strided())};
}

Tensor SharedExpertMLPFwdOp::invoke(const Op& op, const Tensor& hidden_states,
                                    const Tensor& w_gate_up, const Tensor& w_down,
                                    const Tensor& out) {
  const Tensor* inputs[] = {&hidden_states, &w_gate_up, &w_down};
  const Tensor* outs[] = {&out};
  return op.call({inputs, outs}).take(0);
}

Results SharedExpertMLPFwdOp::forward(Call& call) const {
  Tensor out = call.output();
  const shared_expert_mlp::Args args{call.input(0), call.input(1), call.input(2), out};
  kernel_for<shared_expert_mlp::SharedExpertMLP>(call, make_call(shard_, batch_invariant_, args))
      .run(args);
  return {std::move(out)};
}

}  // namespace tileops
