// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"

namespace tileops {

/// The MLP of every expert on its rows: a gated grouped GEMM, then a plain one. The 2F intermediate
/// is never written.
/// Shapes: expert_input [P, H] or [E, max_m, H]; w_gate_up [E, 2F, H]; w_down [E, H, F];
///         layout_metadata as the layout says; b_gate_up [E, 2F], b_down [E, H], together or
///         absent; out as expert_input. dtype: float16 or bfloat16, one for all. Padding rows of
///         out hold unspecified values.
/// Bits:   equal from run to run; with batch_invariant a row's are those that it has alone.
/// Errors: kShape, kDType, kDevice (the spec's checks); those of the two grouped GEMMs.
/// Source: expert_mlp.yaml.
class MoEExpertMLPFwdOp : public TypedOp<MoEExpertMLPFwdOp> {
 public:
  static constexpr std::string_view kName = "MoEExpertMLPFwdOp";
  using delegate_types =
      DelegateTypes<Stage<"gate_up", MoEGroupedGemmFwdOp>, Stage<"down", MoEGroupedGemmFwdOp>>;

  explicit MoEExpertMLPFwdOp(MGroupedLayout layout,
                             GatedActivation activation = GatedActivation::silu_and_mul,
                             OpOptions options = {})
      : MoEExpertMLPFwdOp(layout, activation, false, std::move(options)) {}
  MoEExpertMLPFwdOp(MGroupedLayout layout, GatedActivation activation, bool batch_invariant,
                    OpOptions options = {});
  static std::shared_ptr<MoEExpertMLPFwdOp> from_params(const Params& params,
                                                        const OpOptions& options);

  struct Optional {
    Tensor b_gate_up;
    Tensor b_down;
    Tensor out;
  };
  Tensor operator()(const Tensor& expert_input, const Tensor& w_gate_up, const Tensor& w_down,
                    const Tensor& layout_metadata, const Optional& optional = {}) const {
    return invoke(*this, expert_input, w_gate_up, w_down, layout_metadata, optional);
  }
  static Tensor invoke(const Op& op, const Tensor& expert_input, const Tensor& w_gate_up,
                       const Tensor& w_down, const Tensor& layout_metadata,
                       const Optional& optional = {});

 protected:
  Results forward(Call& call) const override;

 private:
  Held<MoEGroupedGemmFwdOp> gate_up_;
  Held<MoEGroupedGemmFwdOp> down_;
};

}  // namespace tileops
