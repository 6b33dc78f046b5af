// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/fused_topk/fused_topk_kernel.h"
#include "tileops/ops/moe/routing.h"

namespace tileops {

/// Routes tokens: scores the logits, chooses top_k experts a token, weights them.
/// Shapes: gating_output [T, E]; correction_bias [E] float32 or absent; topk_weights [T, top_k]
///         float32, topk_ids [T, top_k] and tokens_per_expert [E] int32 (where count_tokens).
///         gating_output: float16, bfloat16 or float32.
/// Choice: by score, with a bias by sigmoid + bias; ties go to the lower id; a NaN ranks below
///         every number, so ids are distinct and in range whatever comes. Chosen experts come best
///         first.
/// Groups: the best topk_group of num_expert_group take part. A group's score is the sum of its
///         best two where a bias comes, else its best; ties go to the lower group.
/// Weights: softmax or sigmoid of the logits, never of the bias; several infinite logits share a
///         softmax evenly; renormalised ones sum to 1 however small the scores are; then scaled. A
///         weight is NaN where a logit that it is computed from is.
/// Errors: kShape, kDType, kDevice, kValue (the spec's checks).
/// Source: fused_topk.yaml.
class FusedTopKFwdOp : public TypedOp<FusedTopKFwdOp> {
 public:
  static constexpr std::string_view kName = "FusedTopKFwdOp";
  static constexpr bool kTunable = false;
  using interfaces = KernelInterfaces<fused_topk::FusedTopK>;
  static std::vector<AnyImplementation> kernel_types();

  explicit FusedTopKFwdOp(const Routing& routing, bool count_tokens = false,
                          OpOptions options = {});
  static std::shared_ptr<FusedTopKFwdOp> from_params(const Params& params,
                                                     const OpOptions& options);

  struct Output {
    Tensor topk_weights;
    Tensor topk_ids;
    Tensor tokens_per_expert;  // absent unless count_tokens
  };
  Output operator()(const Tensor& gating_output, const Tensor& correction_bias = {}) const {
    return invoke(*this, gating_output, correction_bias);
  }
  static Output invoke(const Op& op, const Tensor& gating_output,
                       const Tensor& correction_bias = {});

 protected:
  Results forward(Call& call) const override;

 private:
  Routing routing_;
};

}  // namespace tileops
