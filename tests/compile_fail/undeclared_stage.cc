// SPDX-License-Identifier: Apache-2.0
// Contract A4: a stage literal that the class does not declare does not compile.
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"

namespace tileops {

class OneStageOp : public TypedOp<OneStageOp> {
 public:
  static constexpr std::string_view kName = "OneStageOp";
  using delegate_types = DelegateTypes<Stage<"gate_up", MoEGroupedGemmFwdOp>>;
  static std::shared_ptr<OneStageOp> from_params(const Params&, const OpOptions&);

  OneStageOp() : TypedOp({}) {
#ifdef FAULT
    delegate_for<"gate_down">(settled, nullptr, MGroupedLayout::contiguous(), GatedActivation(),
                              std::nullopt);
#else
    delegate_for<"gate_up">(settled, nullptr, MGroupedLayout::contiguous(), GatedActivation(),
                            std::nullopt);
#endif
  }
};

}  // namespace tileops
