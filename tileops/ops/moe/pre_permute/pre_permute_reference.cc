// SPDX-License-Identifier: Apache-2.0
// The oracle: for each expert, all routes are looked at, and their rows copied element by element.
#include <vector>

#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/pre_permute/pre_permute_kernel.h"

namespace tileops::pre_permute {
namespace {

class ReferenceKernel final : public PrePermuteKernel {
 public:
  ReferenceKernel(MGroupedLayout layout, int64_t num_experts)
      : layout_(layout), num_experts_(num_experts) {}

  void run(const Args& args) const override {
    fill(args.inverse_indices, 0, args.inverse_indices.num_elements(), -1);
    if (layout_.is_per_row())
      fill(args.layout_metadata, 0, args.layout_metadata.num_elements(), num_experts_);
    int64_t row = 0;
    for (int64_t e = 0; e < num_experts_; ++e) {
      if (layout_.is_masked()) row = e * layout_.max_m();
      while (row % layout_.alignment() != 0) ++row;
      const int64_t begin = row;
      row = gather(args, e, begin);
      if (layout_.is_masked()) {
        store_at(args.layout_metadata, e, static_cast<double>(row - begin));
      } else if (!layout_.is_per_row()) {
        store_at(args.layout_metadata, e, static_cast<double>(row));
      } else {
        int64_t end = row;
        while (end % layout_.alignment() != 0) ++end;
        fill(args.layout_metadata, begin, end, e);
      }
    }
  }

 private:
  static void fill(const Tensor& tensor, int64_t begin, int64_t end, int64_t value) {
    for (int64_t i = begin; i < end; ++i) store_at(tensor, i, static_cast<double>(value));
  }

  /// Copies the rows of one expert from `row` on; returns where they end.
  int64_t gather(const Args& args, int64_t expert, int64_t row) const {
    const int64_t begin = row;
    const int64_t num_tokens = args.hidden_states.shape()[0],
                  hidden = args.hidden_states.shape()[1];
    const int64_t top_k = args.local_expert_ids.shape()[1];
    const Strides& strides = args.hidden_states.strides();
    for (int64_t route = 0; route < num_tokens * top_k; ++route) {
      const int64_t token = route / top_k;
      if (int32_at(args.local_expert_ids, token, route % top_k) != expert) continue;
      if (layout_.is_masked() && row - begin == layout_.max_m()) break;
      for (int64_t h = 0; h < hidden; ++h) {
        const double value = load_at(args.hidden_states, token * strides[0] + h * strides[1]);
        store_at(args.expert_input, row * hidden + h, value);
      }
      store_at(args.inverse_indices, route, static_cast<double>(row++));
    }
    return row;
  }

  MGroupedLayout layout_;
  int64_t num_experts_;
};

}  // namespace

Implementation<PrePermute> reference() {
  return {.info = {.key = "reference", .devices = {DeviceType::kCPU}, .general = true},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<PrePermute> {
            return {Value::List{call.layout.to_value(), call.num_experts},
                    [layout = call.layout, num_experts = call.num_experts](const BuildOptions&) {
                      return std::make_shared<ReferenceKernel>(layout, num_experts);
                    }};
          }};
}

}  // namespace tileops::pre_permute
