// SPDX-License-Identifier: Apache-2.0
// The oracle: one route after another, float64 throughout, one rounding at the store.
#include <vector>

#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_kernel.h"

namespace tileops::indexed_expert_mlp {
namespace {

/// x · w[expert]ᵀ + bias[expert].
std::vector<double> product(const std::vector<double>& x, const Tensor& w, const Tensor& bias,
                            int64_t expert) {
  std::vector<double> values;
  for (int64_t n = 0; n < w.shape()[1]; ++n) {
    double sum = 0;
    const int64_t row = expert * w.strides()[0] + n * w.strides()[1];
    for (int64_t k = 0; k < w.shape()[2]; ++k) {
      sum += x[static_cast<size_t>(k)] * load_at(w, row + k * w.strides()[2]);
    }
    if (bias.defined()) sum += load_at(bias, expert * bias.strides()[0] + n * bias.strides()[1]);
    values.push_back(sum);
  }
  return values;
}

class ReferenceKernel final : public IndexedExpertMLPKernel {
 public:
  explicit ReferenceKernel(const Settings& settings) : settings_(settings) {}

  void run(const Args& args) const override {
    const int64_t num_tokens = args.topk_ids.shape()[0], hidden = args.w_down.shape()[1];
    for (int64_t token = 0; token < num_tokens; ++token) {
      const std::vector<double> sums = combine(args, token);
      for (int64_t h = 0; h < hidden; ++h) {
        const int64_t at = token * args.out.strides()[0] + h * args.out.strides()[1];
        store_at(args.out, at, settings_.routed_scaling_factor * sums[static_cast<size_t>(h)]);
      }
    }
  }

 private:
  std::vector<double> combine(const Args& args, int64_t token) const {
    const int64_t top_k = args.topk_ids.shape()[1], num_experts = args.w_down.shape()[0];
    const Strides& strides = args.hidden_states.strides();
    std::vector<double> x, sums(static_cast<size_t>(args.w_down.shape()[1]));
    for (int64_t h = 0; h < args.hidden_states.shape()[1]; ++h) {
      x.push_back(load_at(args.hidden_states, token * strides[0] + h * strides[1]));
    }
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t expert = int32_at(args.topk_ids, token, k);
      if (expert < 0 || expert >= num_experts) continue;
      const Strides& weight_strides = args.topk_weights.strides();
      const double weight =
          load_at(args.topk_weights, token * weight_strides[0] + k * weight_strides[1]);
      const std::vector<double> row = mlp(args, x, expert);
      for (size_t h = 0; h < sums.size(); ++h) sums[h] += weight * row[h];
    }
    return sums;
  }

  std::vector<double> mlp(const Args& args, const std::vector<double>& x, int64_t expert) const {
    const std::vector<double> gate_up = product(x, args.w_gate_up, args.b_gate_up, expert);
    const GatedActivation& activation = settings_.activation;
    const size_t inter = gate_up.size() / 2;
    std::vector<double> hidden;
    for (size_t j = 0; j < inter; ++j) {
      hidden.push_back(activation.is_interleaved() ? activation(gate_up[2 * j], gate_up[2 * j + 1])
                                                   : activation(gate_up[j], gate_up[inter + j]));
    }
    return product(hidden, args.w_down, args.b_down, expert);
  }

  Settings settings_;
};

}  // namespace

Implementation<IndexedExpertMLP> reference() {
  return {.info = {.key = "reference", .devices = {DeviceType::kCPU}, .general = true},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<IndexedExpertMLP> {
            return {identity_of(settings_of(call)),
                    [settings = settings_of(call)](const BuildOptions&) {
                      return std::make_shared<ReferenceKernel>(settings);
                    }};
          }};
}

}  // namespace tileops::indexed_expert_mlp
