// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"

#include <utility>

#include "tileops/core/check.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/op_params.h"

namespace tileops {
namespace grouped_gemm {

size_t Call::hash() const { return hash_fields(*this); }

std::string Call::to_string() const {
  return fmt::format("{}, activation {}, {} to {}, rows {}, E {}, N {}, K {}{}{}",
                     tileops::to_string(layout.to_value()),
                     tileops::to_string(activation.to_value()), dtype_short_name(dtype),
                     dtype_short_name(out_dtype), num_rows, num_experts, n, k,
                     has_bias ? ", bias" : "", batch_invariant ? ", batch invariant" : "");
}

Call make_call(const MGroupedLayout& layout, const GatedActivation& activation,
               bool batch_invariant, const Args& args) {
  const Shape& a = args.a.shape();
  return {
      .layout = layout,
      .activation = activation,
      .batch_invariant = batch_invariant,
      .dtype = args.a.dtype(),
      .out_dtype = args.out.dtype(),
      .has_bias = args.bias.defined(),
      .device = args.a.device(),
      .num_rows = layout.is_masked() ? a[0] * a[1] : a[0],
      .num_experts = args.b.shape()[0],
      .n = args.b.shape()[1],
      .k = args.b.shape()[2],
      .k_major = is_inner_contiguous(args.a) && is_inner_contiguous(args.b),
      .out_n_major = is_inner_contiguous(args.out),
      .a_alignment = alignment_of(args.a),
      .b_alignment = alignment_of(args.b),
      .out_alignment = alignment_of(args.out),
      .even_rows = row_matrix(layout, args.a).is_flat() && row_matrix(layout, args.out).is_flat(),
      .expanded = is_expanded(args.a) || is_expanded(args.b)};
}

}  // namespace grouped_gemm

MoEGroupedGemmFwdOp::MoEGroupedGemmFwdOp(MGroupedLayout layout, GatedActivation activation,
                                         std::optional<DType> out_dtype, bool batch_invariant,
                                         OpOptions options)
    : TypedOp({{"layout", layout.to_value()},
               {"activation", activation.to_value()},
               {"out_dtype", dtype_value(out_dtype)},
               {"batch_invariant", batch_invariant}},
              std::move(options)),
      layout_(layout),
      activation_(activation),
      batch_invariant_(batch_invariant) {}

std::shared_ptr<MoEGroupedGemmFwdOp> MoEGroupedGemmFwdOp::from_params(const Params& params,
                                                                      const OpOptions& options) {
  const Value* activation = params.find("activation");
  return std::make_shared<MoEGroupedGemmFwdOp>(
      MGroupedLayout::from_value(params.at("layout")),
      activation == nullptr ? GatedActivation() : GatedActivation::from_value(*activation),
      dtype_param(params, "out_dtype"), bool_param(params, "batch_invariant", false), options);
}

std::vector<AnyImplementation> MoEGroupedGemmFwdOp::kernel_types() {
  return {erase(grouped_gemm::reference()), erase(grouped_gemm::cpu_blocked()),
          erase(grouped_gemm::sm90_weights_on_m()), erase(grouped_gemm::sm90_strided())};
}

Tensor MoEGroupedGemmFwdOp::invoke(const Op& op, const Tensor& a, const Tensor& b,
                                   const Tensor& layout_metadata, const Optional& optional) {
  const Tensor* inputs[] = {&a, &b, &layout_metadata, &optional.bias};
  const Tensor* outs[] = {&optional.out};
  return op.call({inputs, outs}).take(0);
}

Results MoEGroupedGemmFwdOp::forward(Call& call) const {
  Tensor out = call.output();
  const grouped_gemm::Args args{call.input(0), call.input(1), call.input(2), call.input(3), out};
  kernel_for<grouped_gemm::GroupedGemm>(call,
                                        make_call(layout_, activation_, batch_invariant_, args))
      .run(args);
  return {std::move(out)};
}

}  // namespace tileops
