// SPDX-License-Identifier: Apache-2.0
// The MoE layer from its definition, in float64, from nothing but Tensor::at: independent of the
// library's kernels, reference included.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/testing.h"
#include "tileops/core/tensor.h"

namespace tileops::testing {

enum class Act { kSilu, kGeluErf, kGeluTanh, kSwigluOai };

inline double activate(Act act, double gate, double up) {
  switch (act) {
    case Act::kSilu:
      return gate / (1 + std::exp(-gate)) * up;
    case Act::kGeluErf:
      return gate * 0.5 * std::erfc(-gate / std::sqrt(2.0)) * up;
    case Act::kGeluTanh:
      return 0.5 * gate *
             (1 + std::tanh(std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    default: {
      const double g = std::min(gate, 7.0), u = std::clamp(up, -7.0, 7.0);
      return g / (1 + std::exp(-1.702 * g)) * (u + 1);
    }
  }
}

struct Experts {
  Tensor w_gate_up, w_down, b_gate_up, b_down;
  Act act = Act::kSilu;
};

/// The output of one expert for one token.
inline std::vector<double> expert_output(const Experts& experts, const Tensor& hidden,
                                         int64_t token, int64_t e) {
  const int64_t inter = experts.w_down.size(2);
  const auto product = [&](int64_t row) {
    double sum = experts.b_gate_up.defined() ? experts.b_gate_up.at({e, row}) : 0.0;
    for (int64_t h = 0; h < hidden.size(1); ++h)
      sum += hidden.at({token, h}) * experts.w_gate_up.at({e, row, h});
    return sum;
  };
  std::vector<double> activated;
  for (int64_t j = 0; j < inter; ++j) {
    const bool interleaved = experts.act == Act::kSwigluOai;
    activated.push_back(activate(experts.act, product(interleaved ? 2 * j : j),
                                 product(interleaved ? 2 * j + 1 : inter + j)));
  }
  std::vector<double> out;
  for (int64_t h = 0; h < experts.w_down.size(1); ++h) {
    double sum = experts.b_down.defined() ? experts.b_down.at({e, h}) : 0.0;
    for (int64_t j = 0; j < inter; ++j)
      sum += activated[static_cast<size_t>(j)] * experts.w_down.at({e, h, j});
    out.push_back(sum);
  }
  return out;
}

/// [T, H] row-major.
inline std::vector<double> experts_definition(const Experts& experts, const Tensor& hidden,
                                              const Tensor& weights, const Tensor& ids,
                                              double scale) {
  std::vector<double> all;
  for (int64_t t = 0; t < hidden.size(0); ++t) {
    std::vector<double> sums(static_cast<size_t>(experts.w_down.size(1)));
    for (int64_t k = 0; k < ids.size(1); ++k) {
      const auto e = static_cast<int64_t>(ids.at({t, k}));
      if (e < 0 || e >= experts.w_down.size(0)) continue;
      const std::vector<double> out = expert_output(experts, hidden, t, e);
      for (size_t h = 0; h < sums.size(); ++h) sums[h] += weights.at({t, k}) * out[h];
    }
    for (double sum : sums) all.push_back(scale * sum);
  }
  return all;
}

struct Router {
  int64_t top_k = 1;
  bool sigmoid = false, renormalize = false;
  int64_t groups = 1, topk_group = 1;
  double scale = 1;
};

struct Routes {
  std::vector<int64_t> ids;  // [T, K]
  std::vector<double> weights;
};

/// Finite logits only.
inline Routes route_definition(const Router& router, const Tensor& logits, const Tensor& bias) {
  Routes routes;
  const int64_t num_experts = logits.size(1), group_size = num_experts / router.groups;
  for (int64_t t = 0; t < logits.size(0); ++t) {
    std::vector<double> weight, score;
    double total = 0, max = -INFINITY;
    for (int64_t e = 0; e < num_experts; ++e) max = std::max(max, logits.at({t, e}));
    for (int64_t e = 0; e < num_experts; ++e) {
      const double x = logits.at({t, e});
      weight.push_back(router.sigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x - max));
      total += weight.back();
      score.push_back(bias.defined() ? weight.back() + bias.at({e}) : x);
    }
    if (!router.sigmoid)
      for (double& w : weight) w /= total;
    const auto best_first = [](const std::vector<double>& values) {
      std::vector<int64_t> order(values.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
        return values[static_cast<size_t>(i)] > values[static_cast<size_t>(j)];
      });
      return order;
    };
    std::vector<double> group_scores;
    for (int64_t g = 0; g < router.groups; ++g) {
      std::vector<double> members(score.begin() + g * group_size,
                                  score.begin() + (g + 1) * group_size);
      std::sort(members.rbegin(), members.rend());
      group_scores.push_back(members[0] + (bias.defined() && group_size > 1 ? members[1] : 0.0));
    }
    std::vector<int64_t> open = best_first(group_scores);
    open.resize(static_cast<size_t>(router.topk_group));
    std::vector<int64_t> chosen;
    for (int64_t e : best_first(score)) {
      const bool takes_part = std::find(open.begin(), open.end(), e / group_size) != open.end();
      if (takes_part && chosen.size() < static_cast<size_t>(router.top_k)) chosen.push_back(e);
    }
    double sum = 0;
    for (int64_t e : chosen) sum += weight[static_cast<size_t>(e)];
    for (int64_t e : chosen) {
      routes.ids.push_back(e);
      routes.weights.push_back(router.scale * weight[static_cast<size_t>(e)] /
                               (router.renormalize ? sum : 1.0));
    }
  }
  return routes;
}

}  // namespace tileops::testing
