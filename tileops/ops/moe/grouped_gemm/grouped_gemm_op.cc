// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"

#include "tileops/core/check.h"

namespace tileops {
namespace {

Value dtype_value(std::optional<DType> dtype) { return dtype ? Value(*dtype) : Value(); }

std::optional<DType> optional_dtype(const Value* value) {
  if (value == nullptr || value->as_dtype() == nullptr) return std::nullopt;
  return *value->as_dtype();
}

}  // namespace

namespace grouped_gemm {

size_t Call::hash() const {
  return hash_of(layout.hash(), activation.hash(), static_cast<int>(dtype), static_cast<int>(out_dtype),
                 has_bias, static_cast<int>(device.type), device.index, num_rows, num_experts, n, k, k_major,
                 out_n_major, a_alignment, b_alignment, out_alignment);
}

std::string Call::to_string() const {
  return fmt::format("{}, activation {}, {} to {}, rows {}, E {}, N {}, K {}{}", tileops::to_string(layout.to_value()),
                     tileops::to_string(activation.to_value()), dtype_short_name(dtype), dtype_short_name(out_dtype),
                     num_rows, num_experts, n, k, has_bias ? ", bias" : "");
}

namespace {

/// The largest power of two up to 16 that divides the address and every outer stride, in bytes.
int64_t alignment_of(const Tensor& tensor) {
  auto bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(tensor.data()));
  for (int i = 0; i + 1 < tensor.rank(); ++i) {
    bits |= static_cast<uint64_t>(tensor.strides()[i] * dtype_bytes(tensor.dtype()));
  }
  int64_t alignment = 1;
  while (alignment < 16 && (bits & static_cast<uint64_t>(alignment)) == 0) alignment *= 2;
  return alignment;
}

bool inner_is_contiguous(const Tensor& tensor) {
  return tensor.shape()[tensor.rank() - 1] <= 1 || tensor.strides()[tensor.rank() - 1] == 1;
}

}  // namespace

Call make_call(const MGroupedLayout& layout, const GatedActivation& activation, const Args& args) {
  const Shape& a = args.a.shape();
  return {.layout = layout,
          .activation = activation,
          .dtype = args.a.dtype(),
          .out_dtype = args.out.dtype(),
          .has_bias = args.bias.defined(),
          .device = args.a.device(),
          .num_rows = layout.is_masked() ? a[0] * a[1] : a[0],
          .num_experts = args.b.shape()[0],
          .n = args.b.shape()[1],
          .k = args.b.shape()[2],
          .k_major = inner_is_contiguous(args.a) && inner_is_contiguous(args.b),
          .out_n_major = inner_is_contiguous(args.out),
          .a_alignment = alignment_of(args.a),
          .b_alignment = alignment_of(args.b),
          .out_alignment = alignment_of(args.out)};
}

}  // namespace grouped_gemm

MoEGroupedGemmFwdOp::MoEGroupedGemmFwdOp(MGroupedLayout layout, GatedActivation activation,
                                         std::optional<DType> out_dtype, OpOptions options)
    : TypedOp({{"layout", layout.to_value()},
               {"activation", activation.to_value()},
               {"out_dtype", dtype_value(out_dtype)}},
              std::move(options)),
      layout_(layout),
      activation_(activation) {}

std::shared_ptr<MoEGroupedGemmFwdOp> MoEGroupedGemmFwdOp::from_params(const Params& params,
                                                                      const OpOptions& options) {
  const Value* activation = params.find("activation");
  return std::make_shared<MoEGroupedGemmFwdOp>(
      MGroupedLayout::from_value(params.at("layout")),
      activation == nullptr ? GatedActivation() : GatedActivation::from_value(*activation),
      optional_dtype(params.find("out_dtype")), options);
}

std::vector<AnyImplementation> MoEGroupedGemmFwdOp::kernel_types() {
  return {erase(grouped_gemm::reference()), erase(grouped_gemm::cpu_blocked())};
}

Tensor MoEGroupedGemmFwdOp::invoke(const Op& op, const Tensor& a, const Tensor& b,
                                   const Tensor& layout_metadata, const Optional& optional) {
  const Tensor inputs[] = {a, b, layout_metadata, optional.bias};
  const Tensor outs[] = {optional.out};
  return op.call({inputs, outs})[0];
}

Results MoEGroupedGemmFwdOp::forward(Call& call) const {
  const Tensor out = call.output();
  const grouped_gemm::Args args{call.input(0), call.input(1), call.input(2), call.input(3), out};
  kernel_for<grouped_gemm::GroupedGemm>(call, make_call(layout_, activation_, args)).run(args);
  return {out};
}

}  // namespace tileops
