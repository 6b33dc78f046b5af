// SPDX-License-Identifier: Apache-2.0
// The router on a GPU: a warp a token; the scores stay in registers, expert 32 i + l in lane l.
// The launch contract is in fused_topk_sm90_params.h.
#pragma once

#include "tileops/ops/moe/fused_topk/fused_topk_sm90_biased.cuh"
#include "tileops/ops/moe/fused_topk/fused_topk_sm90_choice.cuh"

namespace tileops::fused_topk {

/// One token's routing by one warp, by exact scores: logits as float, or with a bias double.
template <class T, int kExpertsPerLane, bool kHasBias>
class ExactRouter : public TokenChoice<T> {
 public:
  using Score = typename ScoreOf<kHasBias>::Type;
  using Key = KeyOf<Score>;

  __device__ __forceinline__ ExactRouter(const FusedTopKSm90Params& p, int64_t token)
      : TokenChoice<T>(p, token) {
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      const int expert = i * device::kWarpThreads + lane_;
      keys_[i] = expert < p.num_experts ? key_of(choice_score(expert)) : Key(0);
    }
  }

  __device__ __forceinline__ void choose(Key* group_keys) {
    if (p_.is_softmax != 0 && p_.renormalize == 0) sum_all();
    if (p_.topk_group < p_.num_groups) {
      keep_groups<Score>(p_, keys_, group_keys, [this](int first, int size) {
        const auto best = BestTwo<Score, kExpertsPerLane>::of_group(keys_, first, size);
        if (!kHasBias || size == 1) return best.first;
        return key_of(score_of<Score>(best.first) + score_of<Score>(best.second));
      });
    }
    for (int k = 0; k < p_.top_k; ++k) take_best(k);
  }

 private:
  using TokenChoice<T>::p_;
  using TokenChoice<T>::lane_;
  using TokenChoice<T>::id_;
  using TokenChoice<T>::logit_;
  using TokenChoice<T>::max_;
  using TokenChoice<T>::sum_;

  __device__ __forceinline__ Score choice_score(int expert) const {
    if constexpr (kHasBias) {
      return this->exact_score(expert);
    } else {
      return this->logit(expert);
    }
  }

  /// The softmax's denominator over all experts, before any is taken away.
  __device__ __forceinline__ void sum_all() {
    Key key = 0;
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) key = keys_[i] > key ? keys_[i] : key;
    max_ = fmaxf(static_cast<float>(score_of<Score>(Order<Score>::max_of_warp(key))), -infinity());
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      if (keys_[i] != 0) sum += from_max(static_cast<float>(score_of<Score>(keys_[i])), max_);
    }
    sum_ = sum_of_warp(sum);
  }

  /// Lane k % 32 gets id and logit of the k-th.
  __device__ __forceinline__ void take_best(int k) {
    Key key = 0;
    int place = 0;
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      if (keys_[i] <= key) continue;
      key = keys_[i];
      place = i;
    }
    const auto best = Best<Score>::of_warp(key, place * device::kWarpThreads + lane_);
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      if (i * device::kWarpThreads + lane_ == best.id) keys_[i] = 0;
    }
    if (k % device::kWarpThreads != lane_) return;
    const float logit =
        kHasBias ? this->logit(best.id) : static_cast<float>(score_of<Score>(best.key));
    if (k == lane_) {
      id_ = best.id;
      logit_ = logit;
    } else {
      this->ids_[k] = best.id;
      this->weights_[k] = logit;
    }
  }

  Key keys_[kExpertsPerLane];
};

template <class T, int kExpertsPerLane, bool kHasBias>
__global__ void __launch_bounds__(kTokensPerCta* device::kWarpThreads)
    route_tokens(const __grid_constant__ FusedTopKSm90Params p) {
  extern __shared__ uint64_t smem[];
  device::wait_for_previous_kernel();
  device::allow_next_kernel();
  const int warp = device::warp_idx();
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kTokensPerCta + warp;
  if (token >= p.num_tokens) return;
  uint64_t* group_keys = smem + warp * p.num_groups;
  if (kHasBias && p.top_k < device::kWarpThreads) {
    BiasedRouter<T, kExpertsPerLane> router(p, token);
    if (router.choose(reinterpret_cast<KeyOf<float>*>(group_keys))) {
      router.write();
      return;
    }
  }
  using Exact = ExactRouter<T, kExpertsPerLane, kHasBias>;
  Exact router(p, token);
  router.choose(reinterpret_cast<typename Exact::Key*>(group_keys));
  router.write();
}

}  // namespace tileops::fused_topk
