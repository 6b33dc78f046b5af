// SPDX-License-Identifier: Apache-2.0
// Which rows belong to which expert, read from the layout's metadata on the device.
#pragma once

#include "tileops/device/ptx/threads.cuh"

namespace tileops::device {

enum class GroupKind : int32_t {
  kEndRows = 0,   // metadata [E]: end row of each segment; it starts at the last end, aligned up
  kSegments = 1,  // metadata [E, 2], contiguous: first row and end row
  kMasked = 2,    // metadata [E]: valid rows of each slab of max_m rows
  kWhole = 3,     // no metadata: all rows are of the one expert
};

struct Segment {
  int first_row = 0;
  int num_rows = 0;
};

struct Groups {
  GroupKind kind;
  int num_experts;
  int alignment;  // kEndRows
  int max_m;      // kMasked
  int num_rows;   // of the whole matrix: nothing outside is touched, whatever the metadata says
  const int32_t* metadata;
  int metadata_stride;  // in elements; kEndRows, kMasked

  __device__ __forceinline__ Segment segment(int expert) const {
    int first = 0;
    int end = 0;
    if (kind == GroupKind::kEndRows) {
      const int before = expert == 0 ? 0 : of_expert(expert - 1);
      first = (before + alignment - 1) / alignment * alignment;
      end = of_expert(expert);
    } else if (kind == GroupKind::kSegments) {
      first = metadata[2 * expert];
      end = metadata[2 * expert + 1];
    } else if (kind == GroupKind::kWhole) {
      end = num_rows;
    } else {
      first = expert * max_m;
      end = first + min(max(of_expert(expert), 0), max_m);
    }
    first = max(first, 0);
    return {first, max(min(end, num_rows) - first, 0)};
  }

  __device__ __forceinline__ int32_t of_expert(int expert) const {
    return metadata[int64_t{expert} * metadata_stride];
  }
};

struct GroupPlace {
  int expert;
  Segment segment;
  int tile;  // within the expert
};

struct TileCounts {
  int first = 0;
  int second = 0;
};

/// Tiles of all experts together, by two ways of counting in one pass of a warp.
template <class First, class Second>
__device__ __forceinline__ TileCounts count_tiles(const Groups& groups, First first,
                                                  Second second) {
  TileCounts num;
#pragma unroll 4
  for (int expert = lane_idx(); expert < groups.num_experts; expert += kWarpThreads) {
    const int rows = groups.segment(expert).num_rows;
    num.first += first(rows);
    num.second += second(rows);
  }
  num.first = __reduce_add_sync(0xffffffffu, num.first);
  num.second = __reduce_add_sync(0xffffffffu, num.second);
  return num;
}

/// Finds tiles in the concatenation of all experts' tiles. A warp walks the experts 32 at a time,
/// one a lane, and only forward: tiles must be asked for in rising order.
template <class TilesOfRows>
class GroupWalker {
 public:
  __device__ __forceinline__ GroupWalker(const Groups& groups, TilesOfRows tiles_of_rows)
      : groups_(groups), tiles_of_rows_(tiles_of_rows) {
    load_chunk();
  }

  __device__ __forceinline__ GroupPlace find(int tile) {
    int chunk_tiles = __shfl_sync(0xffffffffu, end_tile_, kWarpThreads - 1);
    while (tile - tiles_before_ >= chunk_tiles) {
      tiles_before_ += chunk_tiles;
      first_expert_ += kWarpThreads;
      load_chunk();
      chunk_tiles = __shfl_sync(0xffffffffu, end_tile_, kWarpThreads - 1);
    }
    const int local = tile - tiles_before_;
    const int lane = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, end_tile_ > local))) - 1;
    const int lane_tiles = tiles_of_rows_(segment_.num_rows);
    GroupPlace place;
    place.expert = first_expert_ + lane;
    place.segment.first_row = __shfl_sync(0xffffffffu, segment_.first_row, lane);
    place.segment.num_rows = __shfl_sync(0xffffffffu, segment_.num_rows, lane);
    place.tile = local - __shfl_sync(0xffffffffu, end_tile_ - lane_tiles, lane);
    return place;
  }

 private:
  /// Loads this lane's expert of the chunk and sums the tiles up to and with it.
  __device__ __forceinline__ void load_chunk() {
    const int expert = first_expert_ + lane_idx();
    segment_ = expert < groups_.num_experts ? groups_.segment(expert) : Segment{};
    end_tile_ = tiles_of_rows_(segment_.num_rows);
#pragma unroll
    for (int step = 1; step < kWarpThreads; step *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, end_tile_, step);
      if (lane_idx() >= step) end_tile_ += below;
    }
  }

  const Groups groups_;
  TilesOfRows tiles_of_rows_;
  int first_expert_ = 0;
  int tiles_before_ = 0;  // tiles of the experts before first_expert_
  Segment segment_;       // of expert first_expert_ + lane
  int end_tile_ = 0;      // within the chunk, of the same expert
};

}  // namespace tileops::device
