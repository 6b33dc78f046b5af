// SPDX-License-Identifier: Apache-2.0
// The CPU's router: tokens in parallel, only as much sorted and exponentiated as the outputs need.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tileops/cpu/parallel.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/fused_topk/fused_topk_kernel.h"

namespace tileops::fused_topk {
namespace {

constexpr int64_t kTokensPerTask = 16;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double log_sigmoid(double x) {
  return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
}

/// An integer that orders as the score does: both zeros are one, NaN is below everything.
int64_t order_key(double score) {
  if (score != score) return std::numeric_limits<int64_t>::min();
  const auto bits = __builtin_bit_cast(int64_t, score + 0.0);
  return bits >= 0 ? bits : bits ^ std::numeric_limits<int64_t>::max();
}

void load_row(const Tensor& tensor, int64_t row, std::vector<double>& values) {
  const int64_t stride = tensor.strides()[1];
  const std::byte* first = element_at(tensor, row * tensor.strides()[0]);
  const auto load = [&](auto* elements, auto&& convert) {
    for (size_t e = 0; e < values.size(); ++e) {
      values[e] = static_cast<double>(convert(elements[static_cast<int64_t>(e) * stride]));
    }
  };
  const auto* bits = reinterpret_cast<const uint16_t*>(first);
  switch (tensor.dtype()) {
    case DType::kF32:
      return load(reinterpret_cast<const float*>(first), [](float x) { return x; });
    case DType::kBF16:
      return load(bits, bf16_to_f32);
    default:
      return load(bits, f16_to_f32);
  }
}

/// One thread's scratch and the routing of its tokens.
class Router {
 public:
  Router(const Routing& routing, const Args& args)
      : routing_(routing),
        args_(args),
        logits_(static_cast<size_t>(args.gating_output.shape()[1])),
        scores_(logits_.size()),
        keys_(logits_.size()),
        candidates_(logits_.size()),
        chosen_(static_cast<size_t>(routing.top_k)) {}

  void route(int64_t token) {
    load_row(args_.gating_output, token, logits_);
    score();
    choose();
    auto* ids = args_.topk_ids.data_as<int32_t>() + token * routing_.top_k;
    std::copy_n(candidates_.begin(), routing_.top_k, ids);
    weigh(ids, args_.topk_weights.data_as<float>() + token * routing_.top_k);
  }

 private:
  void score() {
    const Tensor& bias = args_.correction_bias;
    scores_ = logits_;
    for (size_t e = 0; bias.defined() && e < scores_.size(); ++e) {
      const auto at = static_cast<int64_t>(e) * bias.strides()[0];
      scores_[e] = sigmoid(logits_[e]) + static_cast<double>(bias.data_as<float>()[at]);
    }
    for (size_t e = 0; e < scores_.size(); ++e) keys_[e] = order_key(scores_[e]);
  }

  /// The top_k best candidates of the groups that take part, best first.
  void choose() {
    size_t num_candidates = 0;
    if (routing_.topk_group == routing_.num_expert_group) {
      num_candidates = candidates_.size();
      std::iota(candidates_.begin(), candidates_.end(), 0);
    } else {
      num_candidates = take_groups();
    }
    std::partial_sort(
        candidates_.begin(), candidates_.begin() + routing_.top_k,
        candidates_.begin() + static_cast<int64_t>(num_candidates), [&](int32_t i, int32_t j) {
          const int64_t a = keys_[static_cast<size_t>(i)], b = keys_[static_cast<size_t>(j)];
          return a != b ? a > b : i < j;
        });
  }

  /// Fills candidates_ with the experts of the best groups; returns their number.
  size_t take_groups() {
    const auto num_groups = static_cast<size_t>(routing_.num_expert_group);
    const size_t group_size = scores_.size() / num_groups;
    groups_.clear();
    for (size_t g = 0; g < num_groups; ++g)
      groups_.emplace_back(group_key(g * group_size, group_size), g);
    std::sort(groups_.begin(), groups_.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    size_t num_candidates = 0;
    for (int64_t i = 0; i < routing_.topk_group; ++i) {
      const size_t begin = groups_[static_cast<size_t>(i)].second * group_size;
      for (size_t e = begin; e < begin + group_size; ++e) {
        candidates_[num_candidates++] = static_cast<int32_t>(e);
      }
    }
    return num_candidates;
  }

  int64_t group_key(size_t begin, size_t size) const {
    size_t best = begin, second = begin;
    for (size_t e = begin + 1; e < begin + size; ++e) {
      if (keys_[e] > keys_[best]) {
        second = best;
        best = e;
      } else if (second == best || keys_[e] > keys_[second]) {
        second = e;
      }
    }
    const bool sums_two = args_.correction_bias.defined() && size > 1;
    return sums_two ? order_key(scores_[best] + scores_[second]) : keys_[best];
  }

  void weigh(const int32_t* ids, float* weights) {
    const bool is_softmax = routing_.scoring_func == ScoringFunc::kSoftmax;
    for (size_t k = 0; k < chosen_.size(); ++k) {
      const double logit = logits_[static_cast<size_t>(ids[k])];
      chosen_[k] = is_softmax ? logit : routing_.renormalize ? log_sigmoid(logit) : sigmoid(logit);
    }
    if (routing_.renormalize || is_softmax) {
      normalize(routing_.renormalize ? chosen_ : logits_);
    }
    for (size_t k = 0; k < chosen_.size(); ++k) {
      weights[k] = static_cast<float>(chosen_[k] * routing_.routed_scaling_factor);
    }
  }

  /// Turns chosen_ into weights of a softmax over `all`; infinite ones share it evenly.
  void normalize(const std::vector<double>& all) {
    double max = -std::numeric_limits<double>::infinity();
    for (double score : all) max = score > max ? score : max;
    const auto from_max = [max](double score) {
      return score == max ? 1.0 : std::exp(score - max);
    };
    double sum = 0;
    for (double score : all) sum += from_max(score);
    for (double& score : chosen_) score = from_max(score) / sum;
  }

  const Routing& routing_;
  const Args& args_;
  std::vector<double> logits_, scores_;
  std::vector<int64_t> keys_;
  std::vector<int32_t> candidates_;
  std::vector<double> chosen_;  // scores, then weights
  std::vector<std::pair<int64_t, size_t>> groups_;
};

class CpuRowsKernel final : public FusedTopKKernel {
 public:
  explicit CpuRowsKernel(const Routing& routing) : routing_(routing) {}

  void run(const Args& args) const override {
    cpu::parallel_for(args.gating_output.shape()[0], kTokensPerTask,
                      [&](int64_t begin, int64_t end) {
                        Router router(routing_, args);
                        for (int64_t token = begin; token < end; ++token) router.route(token);
                      });
    if (!args.tokens_per_expert.defined()) return;
    auto* counts = args.tokens_per_expert.data_as<int32_t>();
    std::fill_n(counts, args.tokens_per_expert.num_elements(), 0);
    const auto* ids = args.topk_ids.data_as<int32_t>();
    for (int64_t i = 0; i < args.topk_ids.num_elements(); ++i) ++counts[ids[i]];
  }

 private:
  Routing routing_;
};

}  // namespace

Implementation<FusedTopK> cpu_rows() {
  return {.info = {.key = "cpu_rows", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<FusedTopK> {
            return {call.routing.to_value(), [routing = call.routing](const BuildOptions&) {
                      return std::make_shared<CpuRowsKernel>(routing);
                    }};
          }};
}

}  // namespace tileops::fused_topk
