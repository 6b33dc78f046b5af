// SPDX-License-Identifier: Apache-2.0
// The oracle: plain loops, float64 sums, one rounding at the store.
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/post_permute/post_permute_kernel.h"

namespace tileops::post_permute {
namespace {

class ReferenceKernel final : public PostPermuteKernel {
 public:
  ReferenceKernel(MGroupedLayout layout, double routed_scaling_factor)
      : layout_(layout), routed_scaling_factor_(routed_scaling_factor) {}

  void run(const Args& args) const override {
    const int64_t num_tokens = args.out.shape()[0], hidden = args.out.shape()[1];
    for (int64_t token = 0; token < num_tokens; ++token) {
      for (int64_t h = 0; h < hidden; ++h) {
        const int64_t at = token * args.out.strides()[0] + h * args.out.strides()[1];
        store_at(args.out, at, routed_scaling_factor_ * sum(args, token, h));
      }
    }
  }

 private:
  double sum(const Args& args, int64_t token, int64_t column) const {
    const RowMatrix rows = row_matrix(layout_, args.expert_output);
    const Tensor& weights = args.topk_weights;
    const int64_t top_k = weights.shape()[1];
    double total = 0;
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t route = token * top_k + k;
      const int64_t row =
          args.inverse_indices.data_as<int32_t>()[route * args.inverse_indices.strides()[0]];
      if (row < 0 || row >= rows.num_rows) continue;
      total += load_at(weights, token * weights.strides()[0] + k * weights.strides()[1]) *
               load_at(args.expert_output, rows.offset(row) + column * rows.column_stride);
    }
    return total;
  }

  MGroupedLayout layout_;
  double routed_scaling_factor_;
};

}  // namespace

Implementation<PostPermute> reference() {
  return {.info = {.key = "reference", .devices = {DeviceType::kCPU}, .general = true},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<PostPermute> {
            return {
                Value::List{call.layout.to_value(), call.routed_scaling_factor},
                [layout = call.layout, factor = call.routed_scaling_factor](const BuildOptions&) {
                  return std::make_shared<ReferenceKernel>(layout, factor);
                }};
          }};
}

}  // namespace tileops::post_permute
