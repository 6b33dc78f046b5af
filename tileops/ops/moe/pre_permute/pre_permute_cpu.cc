// SPDX-License-Identifier: Apache-2.0
// The CPU's pre-permutation: a counting sort of the routes, then all rows copied in parallel.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tileops/cpu/parallel.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/pre_permute/pre_permute_kernel.h"
#include "tileops/ops/moe/route_order.h"

namespace tileops::pre_permute {
namespace {

constexpr int64_t kTaskBytes = 256 << 10;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

class CpuGatherKernel final : public PrePermuteKernel {
 public:
  CpuGatherKernel(MGroupedLayout layout, int64_t num_experts)
      : layout_(layout), num_experts_(num_experts) {}

  void run(const Args& args) const override {
    const RouteOrder order = order_routes(args.local_expert_ids, num_experts_);
    auto* inverse = args.inverse_indices.data_as<int32_t>();
    std::fill_n(inverse, args.inverse_indices.num_elements(), -1);
    const std::vector<ExpertRows> segments = lay_out(order, args.layout_metadata);
    std::vector<int32_t> kept;
    std::vector<int64_t> rows;
    for (const ExpertRows& segment : segments) {
      const int64_t first = order.offsets[static_cast<size_t>(segment.expert)];
      for (int64_t i = 0; i < segment.num_rows; ++i) {
        const int32_t route = order.routes[static_cast<size_t>(first + i)];
        inverse[route] = static_cast<int32_t>(segment.row_begin + i);
        kept.push_back(route);
        rows.push_back(segment.row_begin + i);
      }
    }
    copy_rows(args, kept, rows);
  }

 private:
  /// Writes the metadata; returns where each expert's rows stand.
  std::vector<ExpertRows> lay_out(const RouteOrder& order, const Tensor& layout_metadata) const {
    auto* metadata = layout_metadata.data_as<int32_t>();
    std::vector<ExpertRows> segments;
    int64_t end = 0;
    for (int64_t e = 0; e < num_experts_; ++e) {
      ExpertRows segment{static_cast<int32_t>(e), round_up(end, layout_.alignment()),
                         order.count(e)};
      if (layout_.is_masked()) {
        segment.row_begin = e * layout_.max_m();
        segment.num_rows = std::min(segment.num_rows, layout_.max_m());
      }
      const int64_t begin = segment.row_begin;
      end = begin + segment.num_rows;
      if (layout_.is_per_row()) {
        std::fill(metadata + begin, metadata + round_up(end, layout_.alignment()),
                  static_cast<int32_t>(e));
      } else {
        metadata[e] = static_cast<int32_t>(layout_.is_masked() ? segment.num_rows : end);
      }
      segments.push_back(segment);
    }
    if (layout_.is_per_row()) {
      std::fill(metadata + round_up(end, layout_.alignment()),
                metadata + layout_metadata.num_elements(), static_cast<int32_t>(num_experts_));
    }
    return segments;
  }

  static void copy_rows(const Args& args, const std::vector<int32_t>& routes,
                        const std::vector<int64_t>& rows) {
    const Tensor& source = args.hidden_states;
    const int64_t hidden = source.shape()[1], top_k = args.local_expert_ids.shape()[1];
    if (hidden == 0) return;
    const int64_t row_bytes = hidden * dtype_bytes(source.dtype());
    const int64_t grain = std::max<int64_t>(kTaskBytes / row_bytes, 1);
    const bool contiguous = is_inner_contiguous(source);
    cpu::parallel_for(static_cast<int64_t>(routes.size()), grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        const std::byte* from = element_at(source, routes[at] / top_k * source.strides()[0]);
        std::byte* to = element_at(args.expert_input, rows[at] * hidden);
        if (contiguous) {
          std::memcpy(to, from, static_cast<size_t>(row_bytes));
          continue;
        }
        const auto* elements = reinterpret_cast<const uint16_t*>(from);
        for (int64_t h = 0; h < hidden; ++h) {
          reinterpret_cast<uint16_t*>(to)[h] = elements[h * source.strides()[1]];
        }
      }
    });
  }

  MGroupedLayout layout_;
  int64_t num_experts_;
};

}  // namespace

Implementation<PrePermute> cpu_gather() {
  return {.info = {.key = "cpu_gather", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<PrePermute> {
            return {Value::List{call.layout.to_value(), call.num_experts},
                    [layout = call.layout, num_experts = call.num_experts](const BuildOptions&) {
                      return std::make_shared<CpuGatherKernel>(layout, num_experts);
                    }};
          }};
}

}  // namespace tileops::pre_permute
