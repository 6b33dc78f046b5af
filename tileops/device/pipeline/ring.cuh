// SPDX-License-Identifier: Apache-2.0
// Ring of stages between producers and consumers: full = data arrived, empty = slot free.
#pragma once

#include "tileops/device/ptx/mbarrier.cuh"

namespace tileops::device {

/// Where a producer or a consumer stands in a ring of `kStages`: the stage and its phase parity.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void advance() {
    stage += 1;
    if (stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }

  /// Passes over `count` stages that another consumer takes.
  __device__ __forceinline__ void advance(int count) {
    const int to = stage + count;
    stage = to % kStages;
    phase ^= to / kStages & 1;
  }
};

template <int kStages>
struct RingBarriers {
  Mbarrier full_[kStages];
  Mbarrier empty_[kStages];

  /// One thread calls it: so many arrivals make a stage full, so many empty.
  __device__ void init(int to_fill, int to_empty) {
    for (int stage = 0; stage < kStages; ++stage) {
      full_[stage].init(to_fill);
      empty_[stage].init(to_empty);
    }
  }

  /// Producer: waits until the stage is free. The first round finds every stage free.
  __device__ __forceinline__ void wait_empty(const RingPosition<kStages>& at) {
    empty_[at.stage].wait(at.phase ^ 1);
  }

  __device__ __forceinline__ void wait_full(const RingPosition<kStages>& at) {
    full_[at.stage].wait(at.phase);
  }
};

}  // namespace tileops::device
