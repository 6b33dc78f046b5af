// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/layout.h"
#include "tileops/ops/moe/pre_permute/pre_permute_kernel.h"

namespace tileops {

/// Gathers token rows by expert. Stable: an expert's rows stand in the order of their routes.
/// Shapes: hidden_states [T, H], float16 or bfloat16; local_expert_ids [T, K] int32; expert_input
///         [P, H] or [E, max_m, H]; layout_metadata as the layout says; inverse_indices [T·K]
///         int32, the row of each route in expert_input (flattened), −1 for a dropped one. A route
///         whose id lies outside [0, E) is dropped; so is, in a masked layout, one beyond its
///         expert's max_m rows. Padding rows hold unspecified values. The metadata is written for T
///         = 0 too.
/// Errors: kShape, kDType, kDevice, kValue (the spec's checks).
/// Source: pre_permute.yaml.
class MoEPrePermuteFwdOp : public TypedOp<MoEPrePermuteFwdOp> {
 public:
  static constexpr std::string_view kName = "MoEPrePermuteFwdOp";
  static constexpr bool kTunable = false;
  using interfaces = KernelInterfaces<pre_permute::PrePermute>;
  static std::vector<AnyImplementation> kernel_types();

  MoEPrePermuteFwdOp(MGroupedLayout layout, int64_t num_local_experts, OpOptions options = {});
  static std::shared_ptr<MoEPrePermuteFwdOp> from_params(const Params& params,
                                                         const OpOptions& options);

  struct Output {
    Tensor expert_input;
    Tensor layout_metadata;
    Tensor inverse_indices;
  };
  Output operator()(const Tensor& hidden_states, const Tensor& local_expert_ids) const {
    return invoke(*this, hidden_states, local_expert_ids);
  }
  static Output invoke(const Op& op, const Tensor& hidden_states, const Tensor& local_expert_ids);

 protected:
  Results forward(Call& call) const override;

 private:
  MGroupedLayout layout_;
  int64_t num_local_experts_;
};

}  // namespace tileops
