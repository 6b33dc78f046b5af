// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_topk/fused_topk_op.h"

#include <utility>

#include "tileops/core/check.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/op_params.h"

namespace tileops {
namespace fused_topk {

size_t Call::hash() const { return hash_fields(*this); }

std::string Call::to_string() const {
  return fmt::format("{}, {}, T {}, E {}{}{}{}", tileops::to_string(routing.to_params()),
                     dtype_short_name(dtype), num_tokens, num_experts, has_bias ? ", bias" : "",
                     counts_tokens ? ", counts tokens" : "", expert_major ? "" : ", strided");
}

Call make_call(const Routing& routing, const Args& args) {
  return {.routing = routing,
          .dtype = args.gating_output.dtype(),
          .has_bias = args.correction_bias.defined(),
          .counts_tokens = args.tokens_per_expert.defined(),
          .device = args.gating_output.device(),
          .num_tokens = args.gating_output.shape()[0],
          .num_experts = args.gating_output.shape()[1],
          .expert_major = is_inner_contiguous(args.gating_output)};
}

}  // namespace fused_topk

namespace {

Params with_count_tokens(Params params, bool count_tokens) {
  params.set("count_tokens", count_tokens);
  return params;
}

}  // namespace

FusedTopKFwdOp::FusedTopKFwdOp(const Routing& routing, bool count_tokens, OpOptions options)
    : TypedOp(with_count_tokens(routing.to_params(), count_tokens), std::move(options)),
      routing_(routing) {}

std::shared_ptr<FusedTopKFwdOp> FusedTopKFwdOp::from_params(const Params& params,
                                                            const OpOptions& options) {
  return std::make_shared<FusedTopKFwdOp>(Routing::from_params(params),
                                          bool_param(params, "count_tokens", false), options);
}

std::vector<AnyImplementation> FusedTopKFwdOp::kernel_types() {
  return {erase(fused_topk::reference()), erase(fused_topk::cpu_rows()),
          erase(fused_topk::sm90_warp_per_token())};
}

FusedTopKFwdOp::Output FusedTopKFwdOp::invoke(const Op& op, const Tensor& gating_output,
                                              const Tensor& correction_bias) {
  const Tensor* inputs[] = {&gating_output, &correction_bias};
  Results results = op.call({inputs, {}});
  return {results.take(0), results.take(1), results.take(2)};
}

Results FusedTopKFwdOp::forward(Call& call) const {
  Tensor weights = call.output(0), ids = call.output(1), counts = call.output(2);
  const fused_topk::Args args{call.input(0), call.input(1), weights, ids, counts};
  kernel_for<fused_topk::FusedTopK>(call, make_call(routing_, args)).run(args);
  return {std::move(weights), std::move(ids), std::move(counts)};
}

}  // namespace tileops
