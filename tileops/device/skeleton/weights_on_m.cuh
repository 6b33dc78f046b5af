// SPDX-License-Identifier: Apache-2.0
// Skeleton of a persistent, warp-specialised GEMM: weight rows are wgmma's M, token rows its N.
//
// An expert's tokens then cost what they are, in steps of 16, instead of tiles of 64 rows, and each
// weight tile is read once for up to kTileRows tokens. One warpgroup produces: warp 0 schedules,
// warp 1 (and, where the loader says so, the others) loads. Two warpgroups multiply: every second
// strip of 64 weight rows each, or (P::kPingPong) whole tiles in turn, so that one's epilogue runs
// under the other's products. A cluster's CTAs work on neighbouring weight tiles of the same
// tokens, in lockstep, and each loads its share of the token rows for all: no parity of tile counts
// can make one wait for ever.
#pragma once

#include "tileops/device/mma/wgmma.cuh"
#include "tileops/device/ptx/tma.cuh"
#include "tileops/device/tile/hand_over.cuh"
#include "tileops/device/tile/partials.cuh"
#include "tileops/device/tile/work.cuh"

namespace tileops::device {

constexpr int kStripFeatures = 64;  // weight rows of a wgmma
constexpr int kMathWarpgroups = 2;
constexpr int kWarpsOfWarpgroup = 4;
constexpr int kMathWarps = kMathWarpgroups * kWarpsOfWarpgroup;
constexpr int kGemmThreads = 384;
constexpr int kGateWarp = 3;                      // where the loader has one warp
constexpr int kRegistersOfThreeWarpgroups = 504;  // a thread of each

/// Whose turn it is to multiply, where math warpgroups take whole tiles in turn. A ring's parities
/// tell one round from the next, not from the one after: nobody waits for stages out of turn.
struct Turns {
  Mbarrier given_[kMathWarpgroups];

  __device__ void init() {
    for (Mbarrier& given : given_) given.init(kWarpsOfWarpgroup);
  }

  /// Before a warpgroup's products of its `round`-th piece; the first warpgroup begins.
  __device__ __forceinline__ void wait(int warpgroup, uint32_t round) {
    given_[warpgroup].wait((round & 1) ^ (warpgroup == 0));
  }
  /// Before its last stage: the other's first products follow its last ones without a gap.
  __device__ __forceinline__ void pass_on(int warpgroup) {
    if (lane_idx() == 0) given_[warpgroup ^ 1].arrive();
  }
};

template <class P>
struct GemmStorage {
  alignas(1024) uint8_t weights[P::kStages][P::kTileFeatures * kSwizzleBytes];
  alignas(1024) uint8_t tokens[P::kStages][P::kTileRows * kSwizzleBytes];
  alignas(1024) uint8_t staging[kMathWarpgroups][P::kStagingBytes];
  RingBarriers<P::kStages> ring;
  WorkRing<P::kCtas> work;
  Mbarrier rows_ready[WorkRing<P::kCtas>::kSlots];  // where rows are awaited
  Turns turns;
};

/// What a policy must bring; see grouped_gemm_sm90.cuh for the members' meanings. Where
/// P::awaited_rows(p) has counters, token rows come from the kernel before, which may still run;
/// all else that is read is older than that kernel.
template <class P>
concept WeightsOnMPolicy = requires {
  typename P::Params;
  typename P::Element;
  typename P::Loader;
  P::kTileFeatures;
  P::kTileRows;
  P::kStages;
  P::kCtas;
  P::kPingPong;
  typename P::Epilogue;
}
&&P::kTileFeatures % (kMathWarpgroups * kStripFeatures) == 0 && P::kStages >= 2 &&
    P::kTileRows % kRowStep == 0;

/// Warpgroups that share a tile.
template <class P>
constexpr int kWarpgroupsOfTile = P::kPingPong ? 1 : kMathWarpgroups;

/// Strips of a tile that a math warpgroup multiplies.
template <class P>
constexpr int kStripsOfWarpgroup = P::kTileFeatures / (kWarpgroupsOfTile<P> * kStripFeatures);

template <class P>
__device__ __forceinline__ int strip_of_warpgroup(int i, int warpgroup) {
  return P::kPingPong ? i : i * kMathWarpgroups + warpgroup;
}

/// A thread's sums, of each of its warpgroup's strips.
template <class P>
using Accum = float[kStripsOfWarpgroup<P>][P::kTileRows / 2];

/// accum [strips, 64 weight rows, kN token rows] += the products of a stage, as one wgmma group.
template <class P, int kN>
__device__ __forceinline__ void multiply_stage_n(GemmStorage<P>& smem, int stage, int warpgroup,
                                                 Accum<P>& accum) {
  const uint64_t b = wgmma_descriptor(smem.tokens[stage]);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kStripsOfWarpgroup<P>; ++i) {
    const int strip = strip_of_warpgroup<P>(i, warpgroup);
    const uint64_t a =
        wgmma_descriptor(smem.weights[stage] + strip * kStripFeatures * kSwizzleBytes);
#pragma unroll
    for (int k = 0; k < kTileK / kWgmmaK; ++k) {
      Wgmma<typename P::Element, kN>::mma(accum[i], a + k * kDescriptorStepK,
                                          b + k * kDescriptorStepK);
    }
  }
  wgmma_commit();
}

/// By the narrowest product that covers `num_rows` token rows, of kLow to kHigh steps: a full tile's
/// is found at once, others by halving. The choice is made anew at each stage: around the loop over
/// K, ptxas would give each width registers of its own and move them where the widths join.
template <class P, int kLow = 1, int kHigh = P::kTileRows / kRowStep>
__device__ __forceinline__ void multiply_stage(GemmStorage<P>& smem, int stage, int num_rows,
                                               int warpgroup, Accum<P>& accum) {
  if constexpr (kLow == kHigh) {
    multiply_stage_n<P, kLow * kRowStep>(smem, stage, warpgroup, accum);
  } else {
    constexpr bool kAll = kHigh - kLow + 1 == P::kTileRows / kRowStep;
    constexpr int kMiddle = kAll ? kHigh - 1 : (kLow + kHigh) / 2;
    if (num_rows > kMiddle * kRowStep) {
      multiply_stage<P, kMiddle + 1, kHigh>(smem, stage, num_rows, warpgroup, accum);
    } else {
      multiply_stage<P, kLow, kMiddle>(smem, stage, num_rows, warpgroup, accum);
    }
  }
}

/// accum += sum over the work's k_tiles, one wgmma group in flight.
template <class P>
__device__ __forceinline__ void multiply(GemmStorage<P>& smem, RingPosition<P::kStages>& at,
                                         const Work& work, int warpgroup, Accum<P>& accum) {
  RingPosition<P::kStages> previous = at;
  auto release = [&](const RingPosition<P::kStages>& position) {
    Mbarrier& empty = smem.ring.empty_[position.stage];
    if constexpr (P::kCtas == 1) {
      if (lane_idx() == 0) empty.arrive();
    } else {
      if (lane_idx() < P::kCtas) empty.arrive_at(lane_idx());
    }
  };
#pragma unroll 1
  for (int k_tile = work.k_begin; k_tile < work.k_end; ++k_tile) {
    if (P::kPingPong && k_tile + 1 == work.k_end) smem.turns.pass_on(warpgroup);
    smem.ring.wait_full(at);
    if constexpr (P::Loader::kWritesByThreads) fence_async_proxy();
    multiply_stage<P>(smem, at.stage, work.num_rows, warpgroup, accum);
    if (k_tile > work.k_begin) {
      wgmma_wait<1>();
      release(previous);
    }
    previous = at;
    at.advance();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kStripsOfWarpgroup<P>; ++i) wgmma_pin(accum[i]);
  release(previous);
}

template <class P>
__device__ __forceinline__ void run_math(const typename P::Params& p, GemmStorage<P>& smem,
                                         int worker) {
  const int warpgroup = warp_idx() / 4 - 1;
  const int barrier = 1 + warpgroup;
  const int cta_rank = P::kCtas == 1 ? 0 : static_cast<int>(cluster_cta_rank());
  const PartialSums<P::kTileRows / 2> partials{reinterpret_cast<Vector16*>(p.partial_sums),
                                               p.partial_flags};
  constexpr int kStrips = P::kTileFeatures / kStripFeatures;
  auto slot = [&](int of_worker, int strip) {
    return (of_worker * P::kCtas + cta_rank) * kStrips + strip;
  };
  typename P::Epilogue epilogue(smem.staging[warpgroup], barrier);
  RingPosition<P::kStages> at;
  typename WorkRing<P::kCtas>::Position work_at;
  uint32_t piece = 0;
  for (Work work = smem.work.take(work_at); work.num_rows > 0; work = smem.work.take(work_at)) {
    if constexpr (P::kPingPong) {
      const uint32_t turn = piece++;
      if (static_cast<int>(turn % kMathWarpgroups) != warpgroup) {
        at.advance(work.k_end - work.k_begin);
        continue;
      }
      smem.turns.wait(warpgroup, turn / kMathWarpgroups);
    }
    // Zeros, not a first product that overwrites: ptxas would serialise wgmma.
    Accum<P> accum = {};
    multiply<P>(smem, at, work, warpgroup, accum);
    const int num_values = (work.num_rows + 7) / 8 * 4;
    const int first_strip = (work.feature_tile * P::kCtas + cta_rank) * kStrips;
#pragma unroll
    for (int i = 0; i < kStripsOfWarpgroup<P>; ++i) {
      const int strip = strip_of_warpgroup<P>(i, warpgroup);
      if (work.k_begin > 0) {
        partials.give(slot(worker, strip), accum[i], num_values, barrier);
        continue;
      }
      for (int next = 1; next <= work.num_partials; ++next) {
        partials.add(slot(worker + next, strip), accum[i], num_values, barrier);
      }
      epilogue.finish(p, work, first_strip + strip, accum[i]);
    }
    if (work.k_begin == 0) epilogue.hand_over(p, work.row_tile);
  }
  epilogue.drain();
}

/// A warp tells the loader, piece by piece, that the token rows are written.
template <class P>
__device__ __forceinline__ void run_gate(const AwaitedRows& awaited, GemmStorage<P>& smem) {
  typename WorkRing<P::kCtas>::Position at;
  for (bool more = true; more;) {
    Mbarrier& ready = smem.rows_ready[at.stage];
    const Work work = smem.work.take(at);
    more = work.num_rows > 0;
    if (more) awaited.wait(work.row_tile, work.k_end - work.k_begin);
    if (lane_idx() == 0) ready.arrive();
  }
  wait_for_previous_kernel();  // so that this kernel's end is that one's, too
  allow_next_kernel();
}

template <class P>
__device__ __forceinline__ void run_weights_on_m(const typename P::Params& p) {
  static_assert(
      WeightsOnMPolicy<P>,
      "weights_on_m: P needs Params, Element, Loader, kTileFeatures (of 128), kTileRows (of 16), "
      "kStages >= 2, kCtas, kPingPong, Epilogue");
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  static_assert(sizeof(GemmStorage<P>) <= P::kSmemBytes,
                "weights_on_m: more smem than launched with");
  auto& smem = *reinterpret_cast<GemmStorage<P>*>(shared_bytes);
  const int warp = warp_idx();
  // The first CTAs get the last shares, so that a CTA only ever waits for one that started before.
  const int num_workers = static_cast<int>(gridDim.x) / P::kCtas;
  const int worker = num_workers - 1 - static_cast<int>(blockIdx.x) / P::kCtas;

  const AwaitedRows awaited = P::awaited_rows(p);
  if (threadIdx.x == 0) {
    smem.ring.init(P::Loader::kArrivals, kWarpgroupsOfTile<P> * kWarpsOfWarpgroup * P::kCtas);
    smem.work.init(kMathWarps + P::Loader::kWarps + awaited.exist());
    for (Mbarrier& ready : smem.rows_ready) ready.init(1);
    if constexpr (P::kPingPong) smem.turns.init();
    fence_barrier_init();
  }
  if constexpr (P::kCtas > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  P::prefetch_tensor_maps(p);
  if (!awaited.exist()) wait_for_previous_kernel();

  if (warp < 4) {
    shrink_registers<P::Loader::kRegisters>();
    if (warp == 0 && (P::kCtas == 1 || cluster_cta_rank() == 0)) {
      const WorkShape shape{P::num_feature_tiles(p), p.num_k_tiles, p.lone_tile_k_tiles,
                            p.split_cost_k_tiles};
      WorkScheduler<P::kTileRows, P::kCtas>(P::groups(p), shape, smem.work)
          .run(worker, num_workers, p.work_counters);
    } else if (warp > 0 && warp <= P::Loader::kWarps) {
      P::Loader::run(p, smem);
    } else if (awaited.exist() && warp == kGateWarp) {
      run_gate(awaited, smem);
    }
  } else {
    grow_registers<(kRegistersOfThreeWarpgroups - P::Loader::kRegisters) / kMathWarpgroups>();
    if (!awaited.exist()) allow_next_kernel();
    run_math<P>(p, smem, worker);
  }
  if constexpr (P::kCtas > 1) cluster_sync();  // a CTA outlives its peers' writes to its memory
}

}  // namespace tileops::device
