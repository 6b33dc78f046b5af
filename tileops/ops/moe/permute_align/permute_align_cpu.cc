// SPDX-License-Identifier: Apache-2.0
// The CPU's block-aligned order: one counting sort over the routes, then experts in parallel.
#include <algorithm>
#include <vector>

#include "tileops/cpu/parallel.h"
#include "tileops/ops/moe/permute_align/permute_align_kernel.h"
#include "tileops/ops/moe/route_order.h"

namespace tileops::permute_align {
namespace {

constexpr int64_t kExpertsPerTask = 16;

class CpuCountingSortKernel final : public PermuteAlignKernel {
 public:
  CpuCountingSortKernel(int64_t num_experts, int64_t block_size)
      : num_experts_(num_experts), block_size_(block_size) {}

  void run(const Args& args) const override {
    const RouteOrder order = order_routes(args.topk_ids, num_experts_);
    std::vector<int64_t> first_block(static_cast<size_t>(num_experts_) + 1);
    for (int64_t e = 0; e < num_experts_; ++e) {
      const auto i = static_cast<size_t>(e);
      first_block[i + 1] = first_block[i] + (order.count(e) + block_size_ - 1) / block_size_;
    }
    const auto padding = static_cast<int32_t>(args.topk_ids.num_elements());
    auto* sorted = args.sorted_route_ids.data_as<int32_t>();
    auto* blocks = args.block_expert_ids.data_as<int32_t>();
    cpu::parallel_for(num_experts_, kExpertsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        const auto i = static_cast<size_t>(e);
        const int64_t row = first_block[i] * block_size_,
                      row_end = first_block[i + 1] * block_size_;
        std::copy_n(order.routes.begin() + order.offsets[i], order.count(e), sorted + row);
        std::fill(sorted + row + order.count(e), sorted + row_end, padding);
        std::fill(blocks + first_block[i], blocks + first_block[i + 1], static_cast<int32_t>(e));
      }
    });
    const int64_t num_rows = first_block.back() * block_size_;
    std::fill(sorted + num_rows, sorted + args.sorted_route_ids.num_elements(), padding);
    std::fill(blocks + first_block.back(), blocks + args.block_expert_ids.num_elements(),
              static_cast<int32_t>(num_experts_));
    *args.num_padded_rows.data_as<int32_t>() = static_cast<int32_t>(num_rows);
  }

 private:
  int64_t num_experts_;
  int64_t block_size_;
};

}  // namespace

Implementation<PermuteAlign> cpu_counting_sort() {
  return {.info = {.key = "cpu_counting_sort", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<PermuteAlign> {
            return {Value::List{call.num_experts, call.block_size},
                    [num_experts = call.num_experts,
                     block_size = call.block_size](const BuildOptions&) {
                      return std::make_shared<CpuCountingSortKernel>(num_experts, block_size);
                    }};
          }};
}

}  // namespace tileops::permute_align
