// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/layout.h"
#include "tileops/ops/moe/post_permute/post_permute_kernel.h"
#include "tileops/ops/moe/routing_epilogue.h"

namespace tileops {

/// Combines each token's expert rows: out[t] = scale · Σ_k topk_weights[t, k] · row(t, k), k
/// rising, float32, one rounding at the store.
/// Shapes: expert_output [P, H] or [E, max_m, H], float16, bfloat16 or float32; topk_weights [T, K]
///         float32; inverse_indices [T·K] int32, the row of each route in expert_output
///         (flattened); out [T, H]. A route whose row lies outside the rows adds nothing.
/// Errors: kShape, kDType, kDevice, kValue (the spec's checks).
/// Source: post_permute.yaml.
class MoEPostPermuteFwdOp : public TypedOp<MoEPostPermuteFwdOp> {
 public:
  static constexpr std::string_view kName = "MoEPostPermuteFwdOp";
  static constexpr bool kTunable = false;
  using interfaces = KernelInterfaces<post_permute::PostPermute>;
  static std::vector<AnyImplementation> kernel_types();

  /// `out_dtype`: none for expert_output's.
  explicit MoEPostPermuteFwdOp(MGroupedLayout layout,
                               std::optional<RoutingEpilogue> epilogue = std::nullopt,
                               std::optional<DType> out_dtype = std::nullopt,
                               OpOptions options = {});
  static std::shared_ptr<MoEPostPermuteFwdOp> from_params(const Params& params,
                                                          const OpOptions& options);

  Tensor operator()(const Tensor& expert_output, const Tensor& topk_weights,
                    const Tensor& inverse_indices, const Tensor& out = {}) const {
    return invoke(*this, expert_output, topk_weights, inverse_indices, out);
  }
  static Tensor invoke(const Op& op, const Tensor& expert_output, const Tensor& topk_weights,
                       const Tensor& inverse_indices, const Tensor& out = {});

 protected:
  Results forward(Call& call) const override;

 private:
  MGroupedLayout layout_;
  double routed_scaling_factor_;
};

}  // namespace tileops
