// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/permute_align/permute_align_kernel.h"

namespace tileops {

/// Orders routes by expert, each expert's padded to whole blocks of B rows: what a kernel that
/// takes one expert a block reads. Stable: an expert's routes stand in rising order.
/// Shapes: topk_ids [T, K]; sorted_route_ids [P] with P = T·K + (E+1)(B−1), padding T·K;
///         block_expert_ids [ceil(P/B)], E past the last block; num_padded_rows [1], the rows of
///         all blocks. All int32. Ids outside [0, E) are dropped.
/// Errors: kShape, kDType, kValue (the spec's checks).
/// Source: permute_align.yaml.
class MoEPermuteAlignFwdOp : public TypedOp<MoEPermuteAlignFwdOp> {
 public:
  static constexpr std::string_view kName = "MoEPermuteAlignFwdOp";
  static constexpr bool kTunable = false;
  using interfaces = KernelInterfaces<permute_align::PermuteAlign>;
  static std::vector<AnyImplementation> kernel_types();

  explicit MoEPermuteAlignFwdOp(int64_t num_experts, int64_t block_size = 64,
                                OpOptions options = {});
  static std::shared_ptr<MoEPermuteAlignFwdOp> from_params(const Params& params,
                                                           const OpOptions& options);

  struct Output {
    Tensor sorted_route_ids;
    Tensor block_expert_ids;
    Tensor num_padded_rows;
  };
  Output operator()(const Tensor& topk_ids) const { return invoke(*this, topk_ids); }
  static Output invoke(const Op& op, const Tensor& topk_ids);

 protected:
  Results forward(Call& call) const override;

 private:
  int64_t num_experts_;
  int64_t block_size_;
};

}  // namespace tileops
