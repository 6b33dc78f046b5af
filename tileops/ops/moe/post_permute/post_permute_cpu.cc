// SPDX-License-Identifier: Apache-2.0
// The CPU's post-permutation: tokens and column chunks in parallel, each summed by one thread.
#include "tileops/ops/moe/post_permute/post_permute_kernel.h"
#include "tileops/ops/moe/weighted_reduce.h"

namespace tileops::post_permute {
namespace {

class CpuWeightedSumKernel final : public PostPermuteKernel {
 public:
  CpuWeightedSumKernel(MGroupedLayout layout, double routed_scaling_factor)
      : layout_(layout), scale_(static_cast<float>(routed_scaling_factor)) {}

  void run(const Args& args) const override {
    weighted_reduce(args.expert_output, row_matrix(layout_, args.expert_output), args.topk_weights,
                    args.inverse_indices, scale_, args.out);
  }

 private:
  MGroupedLayout layout_;
  float scale_;
};

}  // namespace

Implementation<PostPermute> cpu_weighted_sum() {
  return {.info = {.key = "cpu_weighted_sum", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<PostPermute> {
            return {
                Value::List{call.layout.to_value(), call.routed_scaling_factor},
                [layout = call.layout, factor = call.routed_scaling_factor](const BuildOptions&) {
                  return std::make_shared<CpuWeightedSumKernel>(layout, factor);
                }};
          }};
}

}  // namespace tileops::post_permute
