// SPDX-License-Identifier: Apache-2.0
// The work of a persistent grouped GEMM: whole waves tile by tile, then the rest split along K.
#pragma once

#include "tileops/device/pipeline/ring.cuh"
#include "tileops/device/ptx/memory.cuh"
#include "tileops/device/tile/groups.cuh"
#include "tileops/device/tile/row_tiling.h"

namespace tileops::device {

/// One piece of work: a tile of one expert, or a range of its k_tiles.
struct Work {
  int32_t expert;
  int32_t feature_tile;  // this worker's unit of weight rows
  int32_t first_row;     // of the token rows
  int32_t num_rows;      // 0: no more work
  int32_t k_begin;       // in k_tiles; > 0: hand the sum to the worker that has k_begin = 0
  int32_t k_end;
  int32_t num_partials;  // following workers whose sums this one adds, in order of K
  int32_t row_tile;      // counted through all experts, in the order of work
};
union WorkSlot {
  Work work;
  Vector16 vectors[2];
};
static_assert(sizeof(WorkSlot) == 32, "Work travels as two vectors");

/// Pieces of work on their way from the scheduler warp of a cluster's first CTA to all who work on
/// them. A piece is fetched only when the loader wants it: reserving early balances badly.
template <int kCtas>
struct WorkRing {
  static constexpr int kSlots = 2;
  using Position = RingPosition<kSlots>;

  WorkSlot slots[kSlots];
  RingBarriers<kSlots> barriers;
  Mbarrier wanted_;

  __device__ void init(int reader_warps) {
    barriers.init(1, reader_warps * kCtas * kWarpThreads);
    wanted_.init(1);
  }

  /// A reader warp takes the next piece; every lane gets it.
  __device__ __forceinline__ Work take(Position& at) {
    if constexpr (kCtas == 1) {
      barriers.full_[at.stage].wait(at.phase);
    } else {
      barriers.full_[at.stage].wait_cluster(at.phase);
    }
    const Work work = slots[at.stage].work;
    if constexpr (kCtas == 1) {
      barriers.empty_[at.stage].arrive();
    } else {
      barriers.empty_[at.stage].arrive_at(scheduler_cta(work));
    }
    at.advance();
    return work;
  }

  /// The scheduler warp gives a piece to every CTA.
  __device__ __forceinline__ void put(Position& at, const Work& work) {
    barriers.wait_empty(at);
    const int cta = lane_idx();
    if (cta < kCtas) {
      if constexpr (kCtas == 1) {
        slots[at.stage].work = work;
        barriers.full_[at.stage].arrive();
      } else {
        WorkSlot slot;
        slot.work = work;
        store_shared_16_at(&slots[at.stage].vectors[0], cta, slot.vectors[0]);
        store_shared_16_at(&slots[at.stage].vectors[1], cta, slot.vectors[1]);
        barriers.full_[at.stage].arrive_release_at(cta);
      }
    }
    __syncwarp();
    at.advance();
  }

 private:
  /// 0, from both vectors of a piece: an arrival at another CTA's barrier may overtake a read of
  /// shared memory that it does not depend on, and the piece would be overwritten before it is read.
  static __device__ __forceinline__ uint32_t scheduler_cta(const Work& work) {
    return static_cast<uint32_t>(work.num_rows | work.k_end) >> 31;
  }
};

struct WorkShape {
  int num_feature_tiles;  // units of weight rows of one expert
  int num_k_tiles;
  // The last tiles, which fill no whole wave, are split along K over all workers where that saves
  // more than the hand-over costs. A tile alone lasts as long as lone_tile_k_tiles in a full wave:
  // fewer than num_k_tiles where a full wave waits for the memory that all share. No share is
  // shorter than the hand-over.
  int lone_tile_k_tiles;
  int split_cost_k_tiles;
};

/// Fills a WorkRing. An expert's row tiles come in groups of kGroupRows rows, the row tile fastest,
/// so that workers which run at the same time share weights and token rows.
///
/// Experts with many rows keep the tensor cores busy, those with few the memory. Each class has a
/// queue; where both have tiles, half of the workers begin on each and go over to the other when it
/// is empty, so that products and weight streams run at the same time and not one after the other.
template <int kTileRows, int kCtas>
class WorkScheduler {
 public:
  static constexpr int kGroupRows = 2048;
  static constexpr int kGroupRowTiles = kGroupRows / kTileRows;
  static constexpr int kManyRows = 160;  // where products take as long as streaming the weights

  __device__ __forceinline__ WorkScheduler(const Groups& groups, const WorkShape& shape,
                                           WorkRing<kCtas>& ring)
      : shape_(shape),
        ring_(ring),
        num_row_tiles_(count_tiles(groups, RowTiles<true>{}, RowTiles<false>{})),
        many_(groups, RowTiles<true>{}),
        few_(groups, RowTiles<false>{}) {}

  /// Whole tiles go to whoever is free: counters[0] (few rows) and [1] (many) count those given out
  /// beyond the first of each worker, counters[2] the workers that are done; the last one leaves 0.
  __device__ __forceinline__ void run(int worker, int num_workers, uint32_t* counters) {
    const int num_rest = num_tiles() % num_workers;
    const int64_t share = share_of_rest(num_rest, num_workers);
    const bool splits = share < shape_.num_k_tiles;
    const int num_whole = num_tiles() - splits * num_rest;
    const int whole_many = min(num_many(), num_whole);
    const int whole_few = num_whole - whole_many;
    const bool both = whole_many > 0 && whole_few > 0;
    bool many = both ? worker % 2 == 0 : whole_many > 0;
    int begun = both ? (num_workers + many) / 2 : num_workers;  // tiles that others begin with
    int tile = both ? worker / 2 : worker;
    for (int queue = 0; queue < 1 + both; ++queue) {
      if (queue > 0) {
        many = !many;
        begun = num_workers - begun;
        tile = begun + fetch(counters + many);
      }
      while (tile < (many ? whole_many : whole_few)) {
        put_piece(many ? tile : num_many() + tile, 0, shape_.num_k_tiles, 0);
        wait_wanted();
        tile = begun + fetch(counters + many);
      }
    }
    if (lane_idx() == 0) {
      __threadfence();
      if (atomicAdd(counters + 2, 1u) + 1 == static_cast<uint32_t>(num_workers)) {
        counters[0] = 0;
        counters[1] = 0;
        counters[2] = 0;
      }
    }
    if (splits) run_rest(worker, share, num_whole);
    ring_.put(at_, Work{});
  }

 private:
  using Tiling = RowTiling<kTileRows>;

  template <bool kMany>
  struct RowTiles {
    __device__ __forceinline__ int operator()(int rows) const {
      const Tiling tiling{static_cast<uint32_t>(rows)};
      return (rows > kManyRows) == kMany ? static_cast<int>(tiling.num_tiles()) : 0;
    }
  };
  using Many = GroupWalker<RowTiles<true>>;
  using Few = GroupWalker<RowTiles<false>>;

  __device__ __forceinline__ int num_many() const {
    return num_row_tiles_.first * shape_.num_feature_tiles;
  }
  __device__ __forceinline__ int num_tiles() const {
    return num_many() + num_row_tiles_.second * shape_.num_feature_tiles;
  }

  static __device__ __forceinline__ int fetch(uint32_t* counter) {
    uint32_t next = 0;
    if (lane_idx() == 0) next = atomicAdd(counter, 1u);
    return static_cast<int>(__shfl_sync(0xffffffffu, next, 0));
  }

  __device__ __forceinline__ void wait_wanted() {
    ring_.wanted_.wait(wanted_phase_);
    wanted_phase_ ^= 1;
  }

  /// k_tiles that each worker takes of the tiles that fill no whole wave, an equal share if it pays;
  /// else all of a tile: they are not split.
  __device__ __forceinline__ int64_t share_of_rest(int num_rest, int num_workers) const {
    const int num_k_tiles = shape_.num_k_tiles;
    const int64_t units = int64_t{num_rest} * num_k_tiles;
    const int64_t share =
        max((units + num_workers - 1) / num_workers, int64_t{shape_.split_cost_k_tiles});
    const int64_t unsplit = max(share, int64_t{shape_.lone_tile_k_tiles});
    return share + shape_.split_cost_k_tiles < unsplit ? share : num_k_tiles;
  }

  /// The worker's share of the k_tiles from `first_tile` on.
  __device__ __forceinline__ void run_rest(int worker, int64_t share, int first_tile) {
    const int num_k_tiles = shape_.num_k_tiles;
    const int64_t units = int64_t{num_tiles() - first_tile} * num_k_tiles;
    int64_t begin = min(units, worker * share);
    const int64_t end = min(units, begin + share);
    while (begin < end) {
      const int64_t tile = begin / num_k_tiles;
      const int k_begin = static_cast<int>(begin - tile * num_k_tiles);
      const int k_end = static_cast<int>(min(int64_t{num_k_tiles}, k_begin + end - begin));
      const int64_t last_unit = (tile + 1) * num_k_tiles - 1;
      const int num_partials = k_begin == 0 ? static_cast<int>(last_unit / share) - worker : 0;
      put_piece(first_tile + static_cast<int>(tile), k_begin, k_end, num_partials);
      wait_wanted();
      begin += k_end - k_begin;
    }
  }

  /// Groups are as even as may be: a short one would read all weights for few rows.
  static __device__ __forceinline__ int row_tiles_of_group(int row_tiles) {
    const int num_groups = max((row_tiles + kGroupRowTiles / 2) / kGroupRowTiles, 1);
    return (row_tiles + num_groups - 1) / num_groups;
  }

  /// `tile` counts the tiles of the experts with many rows first.
  __device__ __forceinline__ void put_piece(int tile, int k_begin, int k_end, int num_partials) {
    const int num_feature_tiles = shape_.num_feature_tiles;
    const int at = tile / num_feature_tiles;  // of all row tiles; the expert's come one by one
    const int num_many = num_row_tiles_.first;
    const GroupPlace place = at < num_many ? many_.find(at) : few_.find(at - num_many);
    const Tiling tiling{static_cast<uint32_t>(place.segment.num_rows)};
    const int row_tiles = static_cast<int>(tiling.num_tiles());
    const int group_size = row_tiles_of_group(row_tiles);
    const int group = place.tile / group_size * group_size;
    const int in_group = tile - (at - place.tile + group) * num_feature_tiles;
    const int group_row_tiles = min(group_size, row_tiles - group);
    const int row_tile = group + in_group % group_row_tiles;
    Work work;
    work.expert = place.expert;
    work.feature_tile = in_group / group_row_tiles;
    const int first_row = static_cast<int>(tiling.first_row(row_tile));
    work.first_row = place.segment.first_row + first_row;
    work.num_rows = static_cast<int>(tiling.first_row(row_tile + 1)) - first_row;
    work.k_begin = k_begin;
    work.k_end = k_end;
    work.num_partials = num_partials;
    work.row_tile = at - place.tile + row_tile;
    ring_.put(at_, work);
  }

  const WorkShape shape_;
  WorkRing<kCtas>& ring_;
  const TileCounts num_row_tiles_;  // first: many rows; its loads bring the walkers' metadata near
  Many many_;
  Few few_;
  typename WorkRing<kCtas>::Position at_;
  uint32_t wanted_phase_ = 0;
};

}  // namespace tileops::device
