// SPDX-License-Identifier: Apache-2.0
// The router on a GPU: a warp a token; the scores stay in registers, expert 32 i + l in lane l.
// The launch contract is in fused_topk_sm90_params.h.
#pragma once

#include "tileops/device/ptx/convert.cuh"
#include "tileops/device/ptx/threads.cuh"
#include "tileops/ops/moe/fused_topk/fused_topk_sm90_params.h"

namespace tileops::fused_topk {

constexpr uint32_t kAllLanes = 0xffffffffu;

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

/// Unsigned integers that order as scores do: both zeros are one, NaN is below every number; 0 is
/// no score's key, and below them all.
template <class Score>
struct Order;

template <>
struct Order<float> {
  using Key = uint32_t;
  static constexpr Key kSign = 0x80000000u;
  static __device__ __forceinline__ Key bits(float x) { return __float_as_uint(x); }
  static __device__ __forceinline__ float value(Key bits) { return __uint_as_float(bits); }
  static __device__ __forceinline__ Key max_of_warp(Key key) {
    return __reduce_max_sync(kAllLanes, key);
  }
};

template <>
struct Order<double> {
  using Key = uint64_t;
  static constexpr Key kSign = 0x8000000000000000u;
  static __device__ __forceinline__ Key bits(double x) {
    return static_cast<Key>(__double_as_longlong(x));
  }
  static __device__ __forceinline__ double value(Key bits) {
    return __longlong_as_double(static_cast<int64_t>(bits));
  }
  static __device__ __forceinline__ Key max_of_warp(Key key) {
    const auto high = static_cast<uint32_t>(key >> 32), low = static_cast<uint32_t>(key);
    const uint32_t best = __reduce_max_sync(kAllLanes, high);
    return static_cast<Key>(best) << 32 | __reduce_max_sync(kAllLanes, high == best ? low : 0u);
  }
};

template <class Score>
using KeyOf = typename Order<Score>::Key;

template <class Score>
__device__ __forceinline__ KeyOf<Score> key_of(Score score) {
  if (score != score) return 1;
  const KeyOf<Score> bits = Order<Score>::bits(score + Score(0));
  return (bits & Order<Score>::kSign) != 0 ? ~bits : bits | Order<Score>::kSign;
}

template <class Score>
__device__ __forceinline__ Score score_of(KeyOf<Score> key) {
  if (key == 1) return Order<Score>::value(~KeyOf<Score>(0));
  constexpr KeyOf<Score> kSign = Order<Score>::kSign;
  return Order<Score>::value((key & kSign) != 0 ? key ^ kSign : ~key);
}

/// The best key of the warp and the lowest id that has it; `id` counts where `key` is the best.
template <class Score>
struct Best {
  KeyOf<Score> key;
  int id;

  static __device__ __forceinline__ Best of_warp(KeyOf<Score> key, int id) {
    const KeyOf<Score> best = Order<Score>::max_of_warp(key);
    const auto candidate = static_cast<uint32_t>(key == best ? id : 0x7fffffff);
    return {best, static_cast<int>(__reduce_min_sync(kAllLanes, candidate))};
  }
};

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

__device__ __forceinline__ float max_of_warp(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float log_sigmoid(float x) {
  return x >= 0.0f ? -log1pf(expf(-x)) : x - log1pf(expf(x));
}

/// A term of a softmax: infinite scores share it evenly.
__device__ __forceinline__ float from_max(float score, float max) {
  return score == max ? 1.0f : expf(score - max);
}

/// One token's routing by one warp.
template <class T, int kExpertsPerLane, class Score>
class TokenRouter {
 public:
  static constexpr bool kHasBias = sizeof(Score) == sizeof(double);
  using Key = KeyOf<Score>;

  __device__ __forceinline__ TokenRouter(const FusedTopKSm90Params& p, int64_t token)
      : p_(p),
        lane_(device::lane_idx()),
        logits_(static_cast<const T*>(p.logits) + token * p.logits_token_stride),
        weights_(p.weights + token * p.top_k),
        ids_(p.ids + token * p.top_k) {
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      const int expert = i * device::kWarpThreads + lane_;
      keys_[i] = expert < p.num_experts ? key_of<Score>(choice_score(expert)) : Key(0);
    }
  }

  /// Keeps the experts of the best groups. `group_keys` has room for all groups.
  __device__ __forceinline__ void keep_groups(Key* group_keys) {
    constexpr Key kTaken = ~Key(0);
    const int size = p_.num_experts / p_.num_groups;
    for (int group = 0; group < p_.num_groups; ++group) {
      const Key key = group_key(group * size, size);
      if (lane_ == 0) group_keys[group] = key;
    }
    for (int round = 0; round < p_.topk_group; ++round) {
      __syncwarp();
      Key key = 0;
      int best = 0;
      for (int group = lane_; group < p_.num_groups; group += device::kWarpThreads) {
        const Key candidate = group_keys[group];
        if (candidate == kTaken || candidate <= key) continue;
        key = candidate;
        best = group;
      }
      best = Best<Score>::of_warp(key, best).id;
      __syncwarp();
      if (lane_ == 0) group_keys[best] = kTaken;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      const int expert = i * device::kWarpThreads + lane_;
      if (expert < p_.num_experts && group_keys[expert / size] != kTaken) keys_[i] = 0;
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

  /// Takes the best top_k; lane k % 32 leaves id and logit of the k-th in the outputs.
  __device__ __forceinline__ void choose() {
    for (int k = 0; k < p_.top_k; ++k) {
      Key key = 0;
      int slot = 0;
#pragma unroll
      for (int i = 0; i < kExpertsPerLane; ++i) {
        if (keys_[i] <= key) continue;
        key = keys_[i];
        slot = i;
      }
      const auto best = Best<Score>::of_warp(key, slot * device::kWarpThreads + lane_);
#pragma unroll
      for (int i = 0; i < kExpertsPerLane; ++i) {
        if (i * device::kWarpThreads + lane_ == best.id) keys_[i] = 0;
      }
      if (k % device::kWarpThreads != lane_) continue;
      ids_[k] = best.id;
      weights_[k] = kHasBias ? logit(best.id) : static_cast<float>(score_of<Score>(best.key));
      if (p_.counts != nullptr) atomicAdd(p_.counts + best.id, 1);
    }
  }

  /// Turns the chosen logits into weights.
  __device__ __forceinline__ void weigh() {
    if (p_.renormalize != 0) {
      max_ = -infinity();
      for_each_choice([&](int k) { max_ = fmaxf(max_, term(k)); });
      max_ = max_of_warp(max_);
      sum_ = 0.0f;
      for_each_choice([&](int k) { sum_ += from_max(term(k), max_); });
      sum_ = sum_of_warp(sum_);
    }
    const bool divides = p_.renormalize != 0 || p_.is_softmax != 0;
    for_each_choice([&](int k) {
      const float weight = divides ? from_max(term(k), max_) / sum_ : sigmoid(weights_[k]);
      weights_[k] = weight * p_.scaling;
    });
  }

 private:
  __device__ __forceinline__ float logit(int expert) const {
    return device::to_float(logits_[expert * p_.logits_expert_stride]);
  }

  __device__ __forceinline__ Score choice_score(int expert) const {
    const Score score = logit(expert);
    if constexpr (!kHasBias) return score;
    return 1 / (1 + exp(-score)) + static_cast<Score>(p_.bias[expert * p_.bias_stride]);
  }

  /// What a softmax over the chosen experts is taken of.
  __device__ __forceinline__ float term(int k) const {
    return p_.is_softmax != 0 ? weights_[k] : log_sigmoid(weights_[k]);
  }

  template <class Visit>
  __device__ __forceinline__ void for_each_choice(const Visit& visit) const {
    for (int k = lane_; k < p_.top_k; k += device::kWarpThreads) visit(k);
  }

  __device__ __forceinline__ Key group_key(int first, int size) const {
    Key best = 0, second = 0;
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      const int member = i * device::kWarpThreads + lane_ - first;
      if (member < 0 || member >= size) continue;
      const Key key = keys_[i], lower = key < best ? key : best;
      best = key > best ? key : best;
      second = lower > second ? lower : second;
    }
    const auto first_best = Best<Score>::of_warp(best, lane_);
    if (!kHasBias || size == 1) return first_best.key;
    const Key second_best = Order<Score>::max_of_warp(lane_ == first_best.id ? second : best);
    return key_of<Score>(score_of<Score>(first_best.key) + score_of<Score>(second_best));
  }

  const FusedTopKSm90Params& p_;
  const int lane_;
  const T* logits_;
  float* weights_;
  int32_t* ids_;
  Key keys_[kExpertsPerLane];
  float max_ = 0.0f;
  float sum_ = 0.0f;
};

template <class T, int kExpertsPerLane, class Score>
__global__ void __launch_bounds__(kTokensPerCta* device::kWarpThreads)
    route_tokens(const __grid_constant__ FusedTopKSm90Params p) {
  extern __shared__ uint64_t smem[];
  device::wait_for_previous_kernel();
  device::allow_next_kernel();
  const int warp = device::warp_idx();
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kTokensPerCta + warp;
  if (token >= p.num_tokens) return;
  TokenRouter<T, kExpertsPerLane, Score> router(p, token);
  if (p.is_softmax != 0 && p.renormalize == 0) router.sum_all();
  if (p.topk_group < p.num_groups) {
    router.keep_groups(reinterpret_cast<KeyOf<Score>*>(smem) + warp * p.num_groups);
  }
  router.choose();
  router.weigh();
}

}  // namespace tileops::fused_topk
