// SPDX-License-Identifier: Apache-2.0
// The router with a bias: float32 scores choose; where their rounding could decide, the few experts
// that it concerns are ordered by float64 scores.
#pragma once

#include "tileops/device/epilogue/activation.cuh"
#include "tileops/ops/moe/fused_topk/fused_topk_sm90_choice.cuh"

namespace tileops::fused_topk {

/// Up to 31 choices of a token by one warp.
template <class T, int kExpertsPerLane>
class BiasedRouter : public TokenChoice<T> {
 public:
  using Key = KeyOf<float>;

  __device__ __forceinline__ BiasedRouter(const FusedTopKSm90Params& p, int64_t token)
      : TokenChoice<T>(p, token) {
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) keys_[i] = 0;
    // NaN comes last, but with a key: 0 is none.
    this->template for_each_logit<kExpertsPerLane, true>([&](int i, float logit, float bias) {
      const Key key = max(key_of(device::sigmoid(logit) + bias), kSlotMask + 1);
      keys_[i] = (key & ~kSlotMask) | static_cast<Key>(kExpertsPerLane - 1 - i);
    });
  }

  /// False: too many scores lie too close to each other.
  __device__ __forceinline__ bool choose(Key* group_keys) {
    if (p_.topk_group < p_.num_groups) {
      const auto boundary = keep_groups<float>(p_, keys_, group_keys, [this](int first, int size) {
        const auto best = BestTwo<float, kExpertsPerLane>::of_group(keys_, first, size);
        if (size == 1) return best.first;
        return key_of(score_of<float>(best.first) + score_of<float>(best.second));
      });
      if (!is_apart(boundary.last, boundary.next, 2)) return false;
    }
    if constexpr (kSorts) sort_descending(keys_);
    Key limit = ~Key(0);
    for (int count = 0; count < p_.top_k; ++count) take(count, limit);
    Key next = next_key(limit);
    if (!all_apart(next)) {
      const Key last = __shfl_sync(kAllLanes, key_, p_.top_k - 1);
      int count = p_.top_k;
      for (; next != 0 && !is_apart(last, next, 1); next = next_key(limit)) {
        if (count == device::kWarpThreads) return false;
        take(count++, limit);
      }
      slot_ = exact_rank(count);
    }
    if (slot_ < p_.top_k) logit_ = this->logit(id_);
    return true;
  }

 private:
  using TokenChoice<T>::p_;
  using TokenChoice<T>::lane_;
  using TokenChoice<T>::slot_;
  using TokenChoice<T>::id_;
  using TokenChoice<T>::logit_;

  /// A key's lowest bits tell the place among its lane's, so that a lane's keys differ.
  static constexpr Key kSlotMask = kExpertsPerLane <= 16 ? 15 : 63;
  static_assert(kExpertsPerLane <= 64);
  static constexpr bool kSorts = kExpertsPerLane <= kMostSorted;

  static __device__ __forceinline__ int expert_of(Key key, int lane) {
    const int place = kExpertsPerLane - 1 - static_cast<int>(key & kSlotMask);
    return place * device::kWarpThreads + lane;
  }

  /// Whether exact scores order as these keys do: a above b, and not for their rounding. A sigmoid
  /// is off by 4e-7 at most (its exponential by 8e-8, a division by 2 ulp), adding the bias rounds
  /// by 2^-24 of the score, and a key leaves out kSlotMask + 1 times as much again.
  static __device__ __forceinline__ bool is_apart(Key key_a, Key key_b, int num_scores) {
    constexpr float kRounding = 1.2e-6f + static_cast<float>(kSlotMask + 1) * 1.2e-7f;  // of two
    const float a = score_of<float>(key_a), b = score_of<float>(key_b);
    return a - b > num_scores * kRounding * (1.0f + fmaxf(fabsf(a), fabsf(b)));
  }

  /// The best that this lane has left: the first of its sorted keys, or what is below its limit.
  __device__ __forceinline__ Key best_left(Key limit) const {
    if constexpr (kSorts) return keys_[0];
    Key best = 0;
#pragma unroll
    for (int i = 0; i < kExpertsPerLane; ++i) {
      if (keys_[i] < limit) best = max(best, keys_[i]);
    }
    return best;
  }

  __device__ __forceinline__ Key next_key(Key limit) const {
    return Order<float>::max_of_warp(best_left(limit));
  }

  /// Lane `count` gets the best of what the lanes have left.
  __device__ __forceinline__ void take(int count, Key& limit) {
    const Key mine = best_left(limit), best = Order<float>::max_of_warp(mine);
    const int winner = __ffs(static_cast<int>(__ballot_sync(kAllLanes, mine == best))) - 1;
    if (lane_ == winner) {
      limit = best;
      if constexpr (kSorts) drop_first(keys_);
    }
    if (lane_ == count) {
      key_ = best;
      id_ = expert_of(best, winner);
    }
  }

  /// Whether each choice is apart from the one after it, the last one from `next` (0: none).
  __device__ __forceinline__ bool all_apart(Key next) const {
    const Key below = __shfl_down_sync(kAllLanes, key_, 1);
    const bool is_last = lane_ == p_.top_k - 1;
    const bool apart =
        lane_ >= p_.top_k || (is_last && next == 0) || is_apart(key_, is_last ? next : below, 1);
    return __all_sync(kAllLanes, apart) != 0;
  }

  /// This lane's place among the first `count` lanes' experts, by exact scores.
  __device__ __forceinline__ int exact_rank(int count) const {
    const bool exists = lane_ < count;
    const KeyOf<double> key =
        exists ? key_of(this->exact_score(this->logit(id_), p_.bias[id_ * p_.bias_stride])) : 0;
    int rank = 0;
    for (int other = 0; other < count; ++other) {
      const KeyOf<double> other_key = __shfl_sync(kAllLanes, key, other);
      const int other_id = __shfl_sync(kAllLanes, id_, other);
      rank += other_key > key || (other_key == key && other_id < id_);
    }
    return exists ? rank : device::kWarpThreads;
  }

  Key keys_[kExpertsPerLane];
  Key key_ = 0;  // of the expert id_
};

}  // namespace tileops::fused_topk
