// SPDX-License-Identifier: Apache-2.0
// Expert parallelism with an exchange of one's own: two ranks, both in this process, share a layer's
// experts. Each rank's layer gets a PrepareFinalize that renames the global expert ids to its own;
// ids of the other rank's experts fall outside [0, L) and are dropped. The ranks' outputs add up to
// the whole layer's.
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <vector>

#include "tileops/tileops.h"

namespace {

using namespace tileops;

constexpr int64_t kTokens = 33, kExperts = 8, kHidden = 64, kInter = 32, kRanks = 2;
constexpr int64_t kLocal = kExperts / kRanks;

/// A real one would send the tokens to the ranks of their experts, and their outputs back.
class LocalIds final : public PrepareFinalize {
 public:
  explicit LocalIds(int64_t first_expert) : first_expert_(first_expert) {}

  Prepared prepare(const RoutedTokens& tokens, int64_t /*num_experts*/) const override {
    RoutedTokens local = tokens;
    local.topk_ids = Tensor::empty(tokens.topk_ids.shape(), DType::kI32);
    const auto* global_ids = tokens.topk_ids.data_as<int32_t>();
    for (int64_t i = 0; i < local.topk_ids.num_elements(); ++i) {
      local.topk_ids.data_as<int32_t>()[i] = global_ids[i] - static_cast<int32_t>(first_expert_);
    }
    return {local, nullptr};
  }

  Tensor finalize(const Tensor& expert_output, const Prepared& /*prepared*/,
                  const RoutedTokens& /*tokens*/) const override {
    return expert_output;
  }

 private:
  int64_t first_expert_;
};

Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0.0, 0.3);
  std::vector<double> values(static_cast<size_t>(num_elements(shape)));
  for (double& value : values) value = normal(engine);
  return Tensor::from_values(shape, dtype, values);
}

/// The largest difference between the ranks' sum and the whole layer.
double largest_difference() {
  const Tensor hidden = random_tensor({kTokens, kHidden}, DType::kBF16, 1);
  const Tensor gating = random_tensor({kTokens, kExperts}, DType::kF32, 2);
  const Tensor w_gate_up = random_tensor({kExperts, 2 * kInter, kHidden}, DType::kBF16, 3);
  const Tensor w_down = random_tensor({kExperts, kHidden, kInter}, DType::kBF16, 4);

  const Routing routing{.top_k = 2, .renormalize = true};
  const Tensor whole = FusedMoEFwdOp(routing)(hidden, gating, w_gate_up, w_down).output;
  std::vector<Tensor> parts;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const int64_t first = rank * kLocal;
    const FusedMoEFwdOp layer(routing, {.num_local_experts = kLocal,
                                        .prepare_finalize = std::make_shared<LocalIds>(first)});
    parts.push_back(
        layer(hidden, gating, w_gate_up.narrow(0, first, kLocal), w_down.narrow(0, first, kLocal))
            .output);
  }
  double largest = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHidden; ++h) {
      const double sum = parts[0].at({t, h}) + parts[1].at({t, h});
      largest = std::fmax(largest, std::fabs(sum - whole.at({t, h})));
    }
  }
  return largest;
}

}  // namespace

int main() {
  try {
    const double difference = largest_difference();
    std::printf("two ranks add up to the layer: largest difference %g\n", difference);
    return difference < 1e-2 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
