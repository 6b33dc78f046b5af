// SPDX-License-Identifier: Apache-2.0
// The oracle: one token after another, every expert sorted, float64 throughout.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/fused_topk/fused_topk_kernel.h"

namespace tileops::fused_topk {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double log_sigmoid(double x) {
  return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
}

/// Whether expert or group i ranks before j.
bool ranks_before(const std::vector<double>& scores, size_t i, size_t j) {
  const double a = scores[i], b = scores[j];
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b) ? i < j : std::isnan(b);
  return a != b ? a > b : i < j;
}

std::vector<size_t> ranking(const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t i, size_t j) { return ranks_before(scores, i, j); });
  return order;
}

/// Softmax over `log_scores`; infinite ones share it evenly.
std::vector<double> softmax(const std::vector<double>& log_scores) {
  double max = -kInfinity;
  for (double score : log_scores) max = score > max ? score : max;
  std::vector<double> weights;
  for (double score : log_scores) weights.push_back(score == max ? 1.0 : std::exp(score - max));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= sum;
  return weights;
}

class ReferenceKernel final : public FusedTopKKernel {
 public:
  explicit ReferenceKernel(const Routing& routing) : routing_(routing) {}

  void run(const Args& args) const override {
    const int64_t num_tokens = args.gating_output.shape()[0];
    const int64_t num_experts = args.gating_output.shape()[1];
    std::vector<int64_t> counts(static_cast<size_t>(num_experts));
    for (int64_t t = 0; t < num_tokens; ++t) {
      std::vector<double> logits;
      for (int64_t e = 0; e < num_experts; ++e) {
        const Strides& strides = args.gating_output.strides();
        logits.push_back(load_at(args.gating_output, t * strides[0] + e * strides[1]));
      }
      const std::vector<size_t> chosen =
          choose(choice_scores(logits, args.correction_bias), args.correction_bias.defined());
      const std::vector<double> weights = weigh(logits, chosen);
      for (size_t k = 0; k < chosen.size(); ++k) {
        const int64_t at = t * routing_.top_k + static_cast<int64_t>(k);
        store_at(args.topk_weights, at, weights[k] * routing_.routed_scaling_factor);
        store_at(args.topk_ids, at, static_cast<double>(chosen[k]));
        ++counts[chosen[k]];
      }
    }
    if (!args.tokens_per_expert.defined()) return;
    for (int64_t e = 0; e < num_experts; ++e) {
      store_at(args.tokens_per_expert, e, static_cast<double>(counts[static_cast<size_t>(e)]));
    }
  }

 private:
  /// Softmax and sigmoid keep the order of the logits, so that without a bias these choose, and no
  /// rounding makes ties.
  static std::vector<double> choice_scores(const std::vector<double>& logits, const Tensor& bias) {
    std::vector<double> scores = logits;
    for (size_t e = 0; bias.defined() && e < scores.size(); ++e) {
      scores[e] = sigmoid(logits[e]) + load_at(bias, static_cast<int64_t>(e) * bias.strides()[0]);
    }
    return scores;
  }

  double group_score(const std::vector<double>& scores, bool has_bias) const {
    const std::vector<size_t> order = ranking(scores);
    const bool sums_two = has_bias && scores.size() > 1;
    return sums_two ? scores[order[0]] + scores[order[1]] : scores[order[0]];
  }

  std::vector<size_t> choose(const std::vector<double>& scores, bool has_bias) const {
    const auto num_groups = static_cast<size_t>(routing_.num_expert_group);
    const size_t group_size = scores.size() / num_groups;
    std::vector<double> group_scores;
    for (size_t g = 0; g < num_groups; ++g) {
      const auto begin = scores.begin() + static_cast<int64_t>(g * group_size);
      group_scores.push_back(
          group_score({begin, begin + static_cast<int64_t>(group_size)}, has_bias));
    }
    const std::vector<size_t> groups = ranking(group_scores);
    std::vector<bool> takes_part(num_groups);
    for (int64_t g = 0; g < routing_.topk_group; ++g)
      takes_part[groups[static_cast<size_t>(g)]] = true;
    std::vector<size_t> chosen;
    for (size_t e : ranking(scores)) {
      if (chosen.size() == static_cast<size_t>(routing_.top_k)) break;
      if (takes_part[e / group_size]) chosen.push_back(e);
    }
    return chosen;
  }

  std::vector<double> weigh(const std::vector<double>& logits,
                            const std::vector<size_t>& chosen) const {
    const bool is_softmax = routing_.scoring_func == ScoringFunc::kSoftmax;
    std::vector<double> weights;
    if (routing_.renormalize) {
      for (size_t e : chosen) weights.push_back(is_softmax ? logits[e] : log_sigmoid(logits[e]));
      return softmax(weights);
    }
    const std::vector<double> all = is_softmax ? softmax(logits) : std::vector<double>();
    for (size_t e : chosen) weights.push_back(is_softmax ? all[e] : sigmoid(logits[e]));
    return weights;
  }

  Routing routing_;
};

}  // namespace

Implementation<FusedTopK> reference() {
  return {.info = {.key = "reference", .devices = {DeviceType::kCPU}, .general = true},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<FusedTopK> {
            return {call.routing.to_value(), [routing = call.routing](const BuildOptions&) {
                      return std::make_shared<ReferenceKernel>(routing);
                    }};
          }};
}

}  // namespace tileops::fused_topk
