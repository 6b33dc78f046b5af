// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/post_permute/post_permute_op.h"

#include <utility>

#include "tileops/core/check.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/op_params.h"

namespace tileops {
namespace post_permute {

size_t Call::hash() const { return hash_fields(*this); }

std::string Call::to_string() const {
  return fmt::format("{}, scaling {}, {} to {}, rows {}, T {}, H {}, K {}{}",
                     tileops::to_string(layout.to_value()), routed_scaling_factor,
                     dtype_short_name(dtype), dtype_short_name(out_dtype), num_rows, num_tokens,
                     hidden, top_k, rows_contiguous && out_contiguous ? "" : ", strided rows");
}

Call make_call(const MGroupedLayout& layout, double routed_scaling_factor, const Args& args) {
  return {.layout = layout,
          .routed_scaling_factor = routed_scaling_factor,
          .dtype = args.expert_output.dtype(),
          .out_dtype = args.out.dtype(),
          .device = args.expert_output.device(),
          .num_rows = row_matrix(layout, args.expert_output).num_rows,
          .num_tokens = args.topk_weights.shape()[0],
          .hidden = args.out.shape()[1],
          .top_k = args.topk_weights.shape()[1],
          .rows_contiguous = is_inner_contiguous(args.expert_output),
          .out_contiguous = is_inner_contiguous(args.out)};
}

}  // namespace post_permute

namespace {

Value epilogue_value(const std::optional<RoutingEpilogue>& epilogue) {
  return epilogue ? epilogue->to_value() : Value();
}

}  // namespace

MoEPostPermuteFwdOp::MoEPostPermuteFwdOp(MGroupedLayout layout,
                                         std::optional<RoutingEpilogue> epilogue,
                                         std::optional<DType> out_dtype, OpOptions options)
    : TypedOp({{"layout", layout.to_value()},
               {"epilogue", epilogue_value(epilogue)},
               {"out_dtype", dtype_value(out_dtype)}},
              std::move(options)),
      layout_(layout),
      routed_scaling_factor_(epilogue ? epilogue->routed_scaling_factor : 1.0) {}

std::shared_ptr<MoEPostPermuteFwdOp> MoEPostPermuteFwdOp::from_params(const Params& params,
                                                                      const OpOptions& options) {
  std::optional<RoutingEpilogue> epilogue;
  const Value* given = params.find("epilogue");
  if (given != nullptr && !given->is_none()) epilogue = RoutingEpilogue::from_value(*given);
  return std::make_shared<MoEPostPermuteFwdOp>(MGroupedLayout::from_value(params.at("layout")),
                                               epilogue, dtype_param(params, "out_dtype"), options);
}

std::vector<AnyImplementation> MoEPostPermuteFwdOp::kernel_types() {
  return {erase(post_permute::reference()), erase(post_permute::cpu_weighted_sum()),
          erase(post_permute::sm90_weighted_sum())};
}

Tensor MoEPostPermuteFwdOp::invoke(const Op& op, const Tensor& expert_output,
                                   const Tensor& topk_weights, const Tensor& inverse_indices,
                                   const Tensor& out) {
  const Tensor* inputs[] = {&expert_output, &topk_weights, &inverse_indices};
  const Tensor* outs[] = {&out};
  return op.call({inputs, outs}).take(0);
}

Results MoEPostPermuteFwdOp::forward(Call& call) const {
  Tensor out = call.output();
  const post_permute::Args args{call.input(0), call.input(1), call.input(2), out};
  kernel_for<post_permute::PostPermute>(call, make_call(layout_, routed_scaling_factor_, args))
      .run(args);
  return {std::move(out)};
}

}  // namespace tileops
