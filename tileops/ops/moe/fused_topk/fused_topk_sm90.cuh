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
    for (int i = 0; i < kExpertsPerLane; ++i) keys_[i] = 0;
    this->template for_each_logit<kExpertsPerLane, kHasBias>(
        [&](int i, float logit, float bias) { keys_[i] = key_of(choice_score(logit, bias)); });
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
    if constexpr (!kHasBias && kExpertsPerLane <= kMostSorted) {
      if (p_.top_k <= device::kWarpThreads) {
        take_sorted();
        return;
      }
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

  static __device__ __forceinline__ Score choice_score(float logit, float bias) {
    if constexpr (kHasBias) {
      return TokenChoice<T>::exact_score(logit, bias);
    } else {
      return logit;
    }
  }

  /// Lane k gets id and logit of the k-th. Keys and ids are one number, so that ties go to the
  /// lower id within a lane; between lanes, which is rare, the ids are compared.
  __device__ __forceinline__ void take_sorted() {
    uint64_t items[kExpertsPerLane];
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      const auto id = static_cast<uint32_t>(i * device::kWarpThreads + lane_);
      items[i] = static_cast<uint64_t>(keys_[i]) << 32 | ~id;
    }
    sort_descending(items);
    uint32_t key = 0;
    for (int k = 0; k < p_.top_k; ++k) {
      const auto mine = static_cast<uint32_t>(items[0] >> 32);
      const auto inverse_id = static_cast<uint32_t>(items[0]);
      const uint32_t best = __reduce_max_sync(kAllLanes, mine);
      uint32_t winners = __ballot_sync(kAllLanes, mine == best);
      if ((winners & (winners - 1)) != 0) {
        const uint32_t of_best = mine == best ? inverse_id : 0u;
        winners = __ballot_sync(kAllLanes, of_best == __reduce_max_sync(kAllLanes, of_best));
      }
      const int winner = __ffs(static_cast<int>(winners)) - 1;
      const uint32_t inverse = __shfl_sync(kAllLanes, inverse_id, winner);
      if (lane_ == winner) drop_first(items);
      if (lane_ == k) {
        id_ = static_cast<int>(~inverse);
        key = best;
      }
    }
    logit_ = score_of<float>(key);
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

/// CTAs that an SM shall hold: left to itself, the compiler spills rather than give up one of them.
template <int kExpertsPerLane>
constexpr int kCtasOfSm = kExpertsPerLane <= 12   ? 8
                          : kExpertsPerLane <= 16 ? 5
                                                  : 2;

template <class T, int kExpertsPerLane, bool kHasBias>
__global__ void __launch_bounds__(kTokensPerCta* device::kWarpThreads, kCtasOfSm<kExpertsPerLane>)
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
