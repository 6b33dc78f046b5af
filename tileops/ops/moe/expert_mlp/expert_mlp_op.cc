// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"

#include "tileops/ops/moe/launch_together.h"
#include "tileops/ops/moe/op_params.h"

namespace tileops {

MoEExpertMLPFwdOp::MoEExpertMLPFwdOp(MGroupedLayout layout, GatedActivation activation,
                                     bool batch_invariant, OpOptions options)
    : TypedOp({{"layout", layout.to_value()},
               {"activation", activation.to_value()},
               {"batch_invariant", batch_invariant}},
              std::move(options)) {
  gate_up_ =
      delegate_for<"gate_up">(settled, nullptr, layout, activation, std::nullopt, batch_invariant);
  down_ = delegate_for<"down">(settled, nullptr, layout, GatedActivation(), std::nullopt,
                               batch_invariant);
}

std::shared_ptr<MoEExpertMLPFwdOp> MoEExpertMLPFwdOp::from_params(const Params& params,
                                                                  const OpOptions& options) {
  const Value* activation = params.find("activation");
  return std::make_shared<MoEExpertMLPFwdOp>(MGroupedLayout::from_value(params.at("layout")),
                                             activation == nullptr
                                                 ? GatedActivation::silu_and_mul
                                                 : GatedActivation::from_value(*activation),
                                             bool_param(params, "batch_invariant", false), options);
}

Tensor MoEExpertMLPFwdOp::invoke(const Op& op, const Tensor& expert_input, const Tensor& w_gate_up,
                                 const Tensor& w_down, const Tensor& layout_metadata,
                                 const Optional& optional) {
  const Tensor* inputs[] = {&expert_input,    &w_gate_up,          &w_down,
                            &layout_metadata, &optional.b_gate_up, &optional.b_down};
  const Tensor* outs[] = {&optional.out};
  return op.call({inputs, outs}).take(0);
}

Results MoEExpertMLPFwdOp::forward(Call& call) const {
  const Tensor& layout_metadata = call.input(3);
  return launch_together(call, [&]() -> Results {
    const Tensor hidden = gate_up_(call.input(0), call.input(1), layout_metadata,
                                   MoEGroupedGemmFwdOp::Optional{.bias = call.input(4)});
    return {down_(hidden, call.input(2), layout_metadata,
                  MoEGroupedGemmFwdOp::Optional{.bias = call.input(5), .out = call.out()})};
  });
}

}  // namespace tileops
