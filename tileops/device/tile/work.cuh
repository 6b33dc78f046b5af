// SPDX-License-Identifier: Apache-2.0
// The list of work of a persistent grouped GEMM: whole waves tile by tile, then the rest split on K.
#pragma once

#include "tileops/device/pipeline/ring.cuh"
#include "tileops/device/tile/groups.cuh"

namespace tileops::device {

/// One piece of work: a tile of one expert, or a range of its k_tiles.
struct alignas(16) Work {
  int32_t expert;
  int32_t feature_tile;  // this worker's unit of weight rows
  int32_t first_row;     // of the token rows
  int32_t num_rows;      // 0: no more work
  int32_t k_begin;       // in k_tiles; > 0: hand the sum to the worker that has k_begin = 0
  int32_t k_end;
  int32_t num_partials;   // following workers whose sums this one adds, in order of K
  int32_t reads_weights_again;  // other tiles read the same weights
};

/// Pieces between the scheduler warp and all who work on them.
template <int kSlots>
struct WorkRing {
  Work slots[kSlots];
  RingBarriers<kSlots> barriers;

  /// A reader warp takes the next piece; every lane gets it.
  __device__ __forceinline__ Work take(RingPosition<kSlots>& at) {
    barriers.wait_full(at);
    const Work work = slots[at.stage];
    __syncwarp();
    if (lane_idx() == 0) barriers.empty_[at.stage].arrive();
    at.advance();
    return work;
  }

  __device__ __forceinline__ void put(RingPosition<kSlots>& at, const Work& work) {
    barriers.wait_empty(at);
    if (lane_idx() == 0) {
      slots[at.stage] = work;
      barriers.full_[at.stage].arrive();
    }
    __syncwarp();
    at.advance();
  }
};

struct WorkShape {
  int num_feature_tiles;  // units of weight rows of one expert
  int num_k_tiles;
  int split_cost_k_tiles;  // a tile is split along K only where that saves more than this
};

/// Cuts `rows` token rows into equal tiles of at most `kTileRows`, each a multiple of 16 but the last.
template <int kTileRows>
struct RowTiling {
  static constexpr int kRowStep = 16;

  static __device__ __forceinline__ int num_tiles(int rows) {
    return (rows + kTileRows - 1) / kTileRows;
  }
  static __device__ __forceinline__ int rows_of_tile(int rows) {
    const int even = (rows + num_tiles(rows) - 1) / max(num_tiles(rows), 1);
    return (even + kRowStep - 1) / kRowStep * kRowStep;
  }
};

/// Fills a WorkRing for worker `worker` of `num_workers`. Token tiles of an expert come in groups of
/// kGroupRowTiles, the row tile fastest, so that workers which run at the same time share weights.
template <int kTileRows, int kSlots>
class WorkScheduler {
 public:
  static constexpr int kGroupRowTiles = 8;

  __device__ __forceinline__ WorkScheduler(const Groups& groups, const WorkShape& shape,
                                           WorkRing<kSlots>& ring)
      : shape_(shape), ring_(ring), walker_(groups, TilesOfRows{shape.num_feature_tiles}),
        num_tiles_(Walker::num_tiles(groups, TilesOfRows{shape.num_feature_tiles})) {}

  __device__ __forceinline__ void run(int worker, int num_workers) {
    const int num_whole = num_tiles_ / num_workers * num_workers;
    for (int tile = worker; tile < num_whole; tile += num_workers) {
      put_piece(tile, 0, shape_.num_k_tiles, 0);
    }
    run_rest(worker, num_workers, num_whole);
    ring_.put(at_, Work{});
  }

 private:
  struct TilesOfRows {
    int num_feature_tiles;
    __device__ __forceinline__ int operator()(int rows) const {
      return RowTiling<kTileRows>::num_tiles(rows) * num_feature_tiles;
    }
  };
  using Walker = GroupWalker<TilesOfRows>;

  /// Each worker takes an equal share of the k_tiles of the tiles that fill no whole wave.
  __device__ __forceinline__ void run_rest(int worker, int num_workers, int first_tile) {
    const int num_k_tiles = shape_.num_k_tiles;
    const int64_t units = int64_t{num_tiles_ - first_tile} * num_k_tiles;
    int64_t share = (units + num_workers - 1) / num_workers;
    if (share + shape_.split_cost_k_tiles >= num_k_tiles) share = num_k_tiles;
    int64_t begin = min(units, worker * share);
    const int64_t end = min(units, begin + share);
    while (begin < end) {
      const int64_t tile = begin / num_k_tiles;
      const int k_begin = static_cast<int>(begin - tile * num_k_tiles);
      const int k_end = static_cast<int>(min(int64_t{num_k_tiles}, k_begin + end - begin));
      const int64_t last_unit = (tile + 1) * num_k_tiles - 1;
      const int num_partials = k_begin == 0 ? static_cast<int>(last_unit / share) - worker : 0;
      put_piece(first_tile + static_cast<int>(tile), k_begin, k_end, num_partials);
      begin += k_end - k_begin;
    }
  }

  __device__ __forceinline__ void put_piece(int tile, int k_begin, int k_end, int num_partials) {
    const typename Walker::Place place = walker_.find(tile);
    const int rows = place.segment.num_rows;
    const int row_tiles = RowTiling<kTileRows>::num_tiles(rows);
    const int rows_of_tile = RowTiling<kTileRows>::rows_of_tile(rows);
    const int group = place.tile / (kGroupRowTiles * shape_.num_feature_tiles);
    const int in_group = place.tile - group * kGroupRowTiles * shape_.num_feature_tiles;
    const int group_row_tiles = min(kGroupRowTiles, row_tiles - group * kGroupRowTiles);
    const int row_tile = group * kGroupRowTiles + in_group % group_row_tiles;
    Work work;
    work.expert = place.expert;
    work.feature_tile = in_group / group_row_tiles;
    work.first_row = place.segment.first_row + row_tile * rows_of_tile;
    work.num_rows = min(rows_of_tile, rows - row_tile * rows_of_tile);
    work.k_begin = k_begin;
    work.k_end = k_end;
    work.num_partials = num_partials;
    work.reads_weights_again = row_tiles > 1;
    ring_.put(at_, work);
  }

  const WorkShape shape_;
  WorkRing<kSlots>& ring_;
  Walker walker_;
  const int num_tiles_;
  RingPosition<kSlots> at_;
};

}  // namespace tileops::device
