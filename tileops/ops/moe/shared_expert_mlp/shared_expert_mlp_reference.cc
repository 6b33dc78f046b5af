// SPDX-License-Identifier: Apache-2.0
// The oracle: plain loops, float64 sums, the activation rounded as the spec says.
#include <vector>

#include "tileops/ops/moe/activation.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_kernel.h"

namespace tileops::shared_expert_mlp {
namespace {

class ReferenceKernel final : public SharedExpertMLPKernel {
 public:
  explicit ReferenceKernel(const Shard& shard) : shard_(shard) {}

  void run(const Args& args) const override {
    const int64_t num_tokens = args.hidden_states.shape()[0], hidden = args.w_down.shape()[0];
    const int64_t size = args.w_down.shape()[1] / shard_.tp_size, begin = shard_.tp_rank * size;
    const Strides& down = args.w_down.strides();
    for (int64_t token = 0; token < num_tokens; ++token) {
      std::vector<double> activated;
      for (int64_t s = begin; s < begin + size; ++s)
        activated.push_back(activation(args, token, s));
      for (int64_t h = 0; h < hidden; ++h) {
        double sum = 0;
        for (int64_t j = 0; j < size; ++j) {
          sum += activated[static_cast<size_t>(j)] *
                 load_at(args.w_down, h * down[0] + (begin + j) * down[1]);
        }
        store_at(args.out, token * args.out.strides()[0] + h * args.out.strides()[1], sum);
      }
    }
  }

 private:
  /// x[token] · w_gate_up[row].
  static double product(const Args& args, int64_t token, int64_t row) {
    const Strides& x = args.hidden_states.strides();
    const Strides& w = args.w_gate_up.strides();
    double sum = 0;
    for (int64_t h = 0; h < args.hidden_states.shape()[1]; ++h) {
      sum += load_at(args.hidden_states, token * x[0] + h * x[1]) *
             load_at(args.w_gate_up, row * w[0] + h * w[1]);
    }
    return sum;
  }

  static double activation(const Args& args, int64_t token, int64_t column) {
    const int64_t inter = args.w_down.shape()[1];
    const double value = GatedActivation::silu_and_mul(product(args, token, column),
                                                       product(args, token, inter + column));
    const DType dtype = args.hidden_states.dtype();
    uint16_t rounded = 0;
    store_element(dtype, &rounded, value);
    return load_element(dtype, &rounded);
  }

  Shard shard_;
};

}  // namespace

Implementation<SharedExpertMLP> reference() {
  return {.info = {.key = "reference", .devices = {DeviceType::kCPU}, .general = true},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<SharedExpertMLP> {
            return {Value::List{call.shard.tp_size, call.shard.tp_rank},
                    [shard = call.shard](const BuildOptions&) {
                      return std::make_shared<ReferenceKernel>(shard);
                    }};
          }};
}

}  // namespace tileops::shared_expert_mlp
