// SPDX-License-Identifier: Apache-2.0
// What the routers of a token share: scores as ordered keys, the choice that the lanes of its warp
// hold, and its weights.
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

/// Exact scores: a logit as it is; with a bias, sums that float32 would round.
template <bool kHasBias>
struct ScoreOf {
  using Type = float;
};
template <>
struct ScoreOf<true> {
  using Type = double;
};

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

/// From place kLow on: the exchanges of keys kApart apart, then the rest of the sort.
template <int kSorted, int kApart, int kLow, class Key, int kSize>
__device__ __forceinline__ void merge_exchange(Key (&keys)[kSize]) {
  constexpr int kHigh = kLow + kApart;
  if constexpr (kHigh < kSize) {
    constexpr int kFirst = kApart % kSorted;
    constexpr bool kPairs = kLow >= kFirst && (kLow - kFirst) / kApart % 2 == 0 &&
                            kLow / (2 * kSorted) == kHigh / (2 * kSorted);
    if constexpr (kPairs) {
      const Key low = keys[kLow], high = keys[kHigh];
      keys[kLow] = low > high ? low : high;
      keys[kHigh] = low > high ? high : low;
    }
    merge_exchange<kSorted, kApart, kLow + 1>(keys);
  } else if constexpr (kApart > 1) {
    merge_exchange<kSorted, kApart / 2, 0>(keys);
  } else if constexpr (2 * kSorted < kSize) {
    merge_exchange<2 * kSorted, 2 * kSorted, 0>(keys);
  }
}

/// Sorts in registers, greatest first: Batcher's odd-even merge sort (Knuth, TAOCP 3, 5.2.2 M).
template <class Key, int kSize>
__device__ __forceinline__ void sort_descending(Key (&keys)[kSize]) {
  if constexpr (kSize > 1) merge_exchange<1, 1, 0>(keys);
}

/// So many keys a lane are sorted; more would be too much code.
constexpr int kMostSorted = 16;

/// Takes the first of a lane's sorted keys away.
template <class Key, int kSize>
__device__ __forceinline__ void drop_first(Key (&keys)[kSize]) {
#pragma unroll
  for (int i = 0; i + 1 < kSize; ++i) keys[i] = keys[i + 1];
  keys[kSize - 1] = 0;
}

__device__ __forceinline__ float sum_of_warp(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

/// Of numbers, not NaN.
__device__ __forceinline__ float max_of_warp(float value) {
  return score_of<float>(Order<float>::max_of_warp(key_of(value)));
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float log_sigmoid(float x) {
  return x >= 0.0f ? -log1pf(expf(-x)) : x - log1pf(expf(x));
}

/// A term of a softmax: infinite scores share it evenly.
__device__ __forceinline__ float from_max(float score, float max) {
  return score == max ? 1.0f : expf(score - max);
}

/// One token's choice: lane l holds the slot_-th of it, or nothing where slot_ >= top_k; what lies
/// beyond 32 stands in the outputs.
template <class T>
class TokenChoice {
 public:
  __device__ __forceinline__ TokenChoice(const FusedTopKSm90Params& p, int64_t token)
      : p_(p),
        lane_(device::lane_idx()),
        slot_(lane_),
        logits_(static_cast<const T*>(p.logits) + token * p.logits_token_stride),
        weights_(p.weights + token * p.top_k),
        ids_(p.ids + token * p.top_k) {}

  /// Writes ids and weights, and counts. `score`: what a weight is made of, step by step.
  __device__ __forceinline__ void write() {
    const bool divides = p_.renormalize != 0 || p_.is_softmax != 0;
    if (p_.renormalize != 0) {
      max_ = -infinity();
      for_each_choice([&](int, int, float& score) {
        if (p_.is_softmax == 0) score = log_sigmoid(score);
        max_ = fmaxf(max_, score);
      });
      max_ = max_of_warp(max_);
      sum_ = 0.0f;
      for_each_choice([&](int, int, float& score) {
        score = from_max(score, max_);
        sum_ += score;
      });
      sum_ = sum_of_warp(sum_);
    } else {
      for_each_choice([&](int, int, float& score) {
        score = divides ? from_max(score, max_) : sigmoid(score);
      });
    }
    const float divisor = divides ? sum_ : 1.0f;
    for_each_choice([&](int k, int id, float& score) {
      ids_[k] = id;
      weights_[k] = score / divisor * p_.scaling;
      if (p_.counts != nullptr) atomicAdd(p_.counts + id, 1);
    });
  }

 protected:
  __device__ __forceinline__ float logit(int expert) const {
    return device::to_float(logits_[expert * p_.logits_expert_stride]);
  }
  /// Calls visit(i, logit, bias) for the experts 32 i + lane. All are asked for before the first is
  /// used; beyond kMostSorted, for want of registers, one after the other.
  template <int kExpertsPerLane, bool kHasBias, class Visit>
  __device__ __forceinline__ void for_each_logit(const Visit& visit) const {
    constexpr int kBatch = kExpertsPerLane <= kMostSorted ? kExpertsPerLane : 1;
    const T* logit_at = logits_ + lane_ * p_.logits_expert_stride;
    const float* bias_at = kHasBias ? p_.bias + lane_ * p_.bias_stride : nullptr;
#pragma unroll
    for (int first = 0; first < kExpertsPerLane; first += kBatch) {
      float logits[kBatch], biases[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const bool exists = (first + i) * device::kWarpThreads + lane_ < p_.num_experts;
        logits[i] = exists ? device::to_float(*logit_at) : 0.0f;
        biases[i] = kHasBias && exists ? *bias_at : 0.0f;
        logit_at += device::kWarpThreads * p_.logits_expert_stride;
        if (kHasBias) bias_at += device::kWarpThreads * p_.bias_stride;
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const bool exists = (first + i) * device::kWarpThreads + lane_ < p_.num_experts;
        if (exists) visit(first + i, logits[i], biases[i]);
      }
    }
  }
  static __device__ __forceinline__ double exact_score(float logit, float bias) {
    return 1 / (1 + exp(-static_cast<double>(logit))) + static_cast<double>(bias);
  }

  const FusedTopKSm90Params& p_;
  const int lane_;
  int slot_;
  int id_ = 0;
  float logit_ = 0.0f;
  float max_ = 0.0f;  // of a softmax
  float sum_ = 0.0f;
  const T* logits_;
  float* weights_;
  int32_t* ids_;

 private:
  /// Calls visit(k, id, score) for this lane's choices; the score, a logit at first, is kept.
  template <class Visit>
  __device__ __forceinline__ void for_each_choice(const Visit& visit) {
    if (slot_ < p_.top_k) visit(slot_, id_, logit_);
#pragma unroll 1
    for (int k = lane_ + device::kWarpThreads; k < p_.top_k; k += device::kWarpThreads) {
      visit(k, ids_[k], weights_[k]);
    }
  }
};

/// The keys of the best `topk_group` groups' members stay, others become 0. `group_keys` has room
/// for all groups, group_key(first, size) tells a group's. Returns the last key that was taken and
/// the best that was not.
template <class Score>
struct GroupBoundary {
  KeyOf<Score> last;
  KeyOf<Score> next;
};
template <class Score, int kExpertsPerLane, class GroupKey>
__device__ __forceinline__ GroupBoundary<Score> keep_groups(const FusedTopKSm90Params& p,
                                                            KeyOf<Score> (&keys)[kExpertsPerLane],
                                                            KeyOf<Score>* group_keys,
                                                            const GroupKey& group_key) {
  using Key = KeyOf<Score>;
  constexpr Key kTaken = ~Key(0);
  const int size = p.num_experts / p.num_groups, lane = device::lane_idx();
  for (int group = 0; group < p.num_groups; ++group) {
    const Key key = group_key(group * size, size);
    if (lane == 0) group_keys[group] = key;
  }
  const auto best_left = [&] {
    Key key = 0;
    int best = 0;
    for (int group = lane; group < p.num_groups; group += device::kWarpThreads) {
      const Key candidate = group_keys[group];
      if (candidate == kTaken || candidate <= key) continue;
      key = candidate;
      best = group;
    }
    return Best<Score>::of_warp(key, best);
  };
  GroupBoundary<Score> boundary{};
  for (int round = 0; round < p.topk_group; ++round) {
    __syncwarp();
    const Best<Score> best = best_left();
    __syncwarp();
    if (lane == 0) group_keys[best.id] = kTaken;
    boundary.last = best.key;
  }
  __syncwarp();
  boundary.next = best_left().key;
#pragma unroll
  for (int i = 0; i < kExpertsPerLane; ++i) {
    const int expert = i * device::kWarpThreads + lane;
    if (expert < p.num_experts && group_keys[expert / size] != kTaken) keys[i] = 0;
  }
  __syncwarp();
  return boundary;
}

/// The best two keys of the members [first, first + size) of a group; of all lanes.
template <class Score, int kExpertsPerLane>
struct BestTwo {
  KeyOf<Score> first;
  KeyOf<Score> second;

  static __device__ __forceinline__ BestTwo of_group(const KeyOf<Score> (&keys)[kExpertsPerLane],
                                                     int first_member, int size) {
    using Key = KeyOf<Score>;
    const int lane = device::lane_idx();
    Key best = 0, second = 0;
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      const int member = i * device::kWarpThreads + lane - first_member;
      if (member < 0 || member >= size) continue;
      const Key key = keys[i], lower = key < best ? key : best;
      best = key > best ? key : best;
      second = lower > second ? lower : second;
    }
    const auto of_warp = Best<Score>::of_warp(best, lane);
    return {of_warp.key, Order<Score>::max_of_warp(lane == of_warp.id ? second : best)};
  }
};

}  // namespace tileops::fused_topk
