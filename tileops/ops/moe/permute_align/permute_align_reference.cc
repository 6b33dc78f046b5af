// SPDX-License-Identifier: Apache-2.0
// The oracle: for each expert, all routes are looked at.
#include <algorithm>
#include <vector>

#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/permute_align/permute_align_kernel.h"

namespace tileops::permute_align {
namespace {

class ReferenceKernel final : public PermuteAlignKernel {
 public:
  ReferenceKernel(int64_t num_experts, int64_t block_size)
      : num_experts_(num_experts), block_size_(block_size) {}

  void run(const Args& args) const override {
    const int64_t num_tokens = args.topk_ids.shape()[0], top_k = args.topk_ids.shape()[1];
    std::vector<int64_t> sorted, blocks;
    for (int64_t e = 0; e < num_experts_; ++e) {
      for (int64_t route = 0; route < num_tokens * top_k; ++route) {
        if (int32_at(args.topk_ids, route / top_k, route % top_k) == e) sorted.push_back(route);
      }
      while (static_cast<int64_t>(sorted.size()) % block_size_ != 0)
        sorted.push_back(num_tokens * top_k);
      while (static_cast<int64_t>(blocks.size()) * block_size_ <
             static_cast<int64_t>(sorted.size())) {
        blocks.push_back(e);
      }
    }
    store_at(args.num_padded_rows, 0, static_cast<double>(sorted.size()));
    fill(args.sorted_route_ids, sorted, num_tokens * top_k);
    fill(args.block_expert_ids, blocks, num_experts_);
  }

 private:
  static void fill(const Tensor& tensor, const std::vector<int64_t>& values, int64_t rest) {
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      const auto at = static_cast<size_t>(i);
      store_at(tensor, i, static_cast<double>(at < values.size() ? values[at] : rest));
    }
  }

  int64_t num_experts_;
  int64_t block_size_;
};

}  // namespace

Implementation<PermuteAlign> reference() {
  return {.info = {.key = "reference", .devices = {DeviceType::kCPU}, .general = true},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<PermuteAlign> {
            return {Value::List{call.num_experts, call.block_size},
                    [num_experts = call.num_experts,
                     block_size = call.block_size](const BuildOptions&) {
                      return std::make_shared<ReferenceKernel>(num_experts, block_size);
                    }};
          }};
}

}  // namespace tileops::permute_align
