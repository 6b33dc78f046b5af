// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/activation.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_kernel.h"
#include "tileops/ops/moe/layout.h"

namespace tileops {

/// Multiplies each expert's rows by its weights: out[rows of e] = a[rows of e] @ b[e]ᵀ, float32
/// accumulation. With a gated activation b stacks gate and up, and the epilogue keeps act(gate)·up.
/// Shapes: a [P, K] or [E, max_m, K]; b [E, N, K], with an activation [E, 2N, K]; layout_metadata
///         as the layout says; bias [E, N] in b's row order, added in float32 before the
///         activation; out [P, N] or [E, max_m, N]. dtypes: a, b, bias float16 or bfloat16; out
///         theirs or float32. Padding rows of out hold unspecified values.
/// Bits:   equal from run to run; with batch_invariant a row's are those that it has alone.
/// Errors: kShape, kDType, kDevice (the spec's checks), kOpNotAvailable (nothing serves the call).
/// Source: grouped_gemm.yaml.
class MoEGroupedGemmFwdOp : public TypedOp<MoEGroupedGemmFwdOp> {
 public:
  static constexpr std::string_view kName = "MoEGroupedGemmFwdOp";
  using interfaces = KernelInterfaces<grouped_gemm::GroupedGemm>;
  static std::vector<AnyImplementation> kernel_types();

  /// `out_dtype`: none for the inputs' dtype, or DType::kF32.
  explicit MoEGroupedGemmFwdOp(MGroupedLayout layout, GatedActivation activation = {},
                               std::optional<DType> out_dtype = std::nullopt,
                               OpOptions options = {})
      : MoEGroupedGemmFwdOp(layout, activation, out_dtype, false, std::move(options)) {}
  MoEGroupedGemmFwdOp(MGroupedLayout layout, GatedActivation activation,
                      std::optional<DType> out_dtype, bool batch_invariant, OpOptions options = {});
  static std::shared_ptr<MoEGroupedGemmFwdOp> from_params(const Params& params,
                                                          const OpOptions& options);

  struct Optional {
    Tensor bias;
    Tensor out;
  };
  Tensor operator()(const Tensor& a, const Tensor& b, const Tensor& layout_metadata,
                    const Optional& optional = {}) const {
    return invoke(*this, a, b, layout_metadata, optional);
  }
  static Tensor invoke(const Op& op, const Tensor& a, const Tensor& b,
                       const Tensor& layout_metadata, const Optional& optional = {});

 protected:
  Results forward(Call& call) const override;

 private:
  MGroupedLayout layout_;
  GatedActivation activation_;
  bool batch_invariant_;
};

}  // namespace tileops
