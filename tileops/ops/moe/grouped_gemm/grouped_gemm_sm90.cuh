// SPDX-License-Identifier: Apache-2.0
// Grouped GEMM for sm_90a: out[rows of e] = a[rows of e] . b[e]^T, with bias and gated activation.
// The launch contract is in grouped_gemm_sm90_params.h.
#pragma once

#include "tileops/device/epilogue/transposed_store.cuh"
#include "tileops/device/skeleton/strided_loader.cuh"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_params.h"

namespace tileops::grouped_gemm {

template <ElementType kType>
struct ElementOf;
template <>
struct ElementOf<ElementType::kBF16> {
  using Type = device::bf16;
};
template <>
struct ElementOf<ElementType::kF16> {
  using Type = device::f16;
};
template <>
struct ElementOf<ElementType::kF32> {
  using Type = float;
};

template <ActivationKind kActivation>
struct ActivationOf;
template <>
struct ActivationOf<ActivationKind::kNone> {
  using Type = device::Identity;
};
template <>
struct ActivationOf<ActivationKind::kSiluAndMul> {
  using Type = device::SiluAndMul;
};
template <>
struct ActivationOf<ActivationKind::kGeluAndMul> {
  using Type = device::GeluAndMul;
};
template <>
struct ActivationOf<ActivationKind::kGeluTanhAndMul> {
  using Type = device::GeluTanhAndMul;
};
template <>
struct ActivationOf<ActivationKind::kSwigluOai> {
  using Type = device::SwigluOai;
};

template <LoadKind kLoad, class C>
struct LoaderOf;
template <class C>
struct LoaderOf<LoadKind::kTma, C> {
  using Type = device::TmaLoader<C>;
};
template <class C>
struct LoaderOf<LoadKind::kStrided, C> {
  using Type = device::StridedLoader<C>;
};

template <class C>
class Epilogue;

/// Policy of the weights-on-M skeleton.
/// kTileFeatures: weight rows of a tile; kTileRows: its token rows, at most; kStages: ring depth;
/// kCtas: CTAs of a cluster, which share token rows; kPingPong: the two math warpgroups take whole
/// tiles in turn.
template <ElementType kIn, ElementType kOut, ActivationKind kActivation, bool kHasBiasOf,
          int kTileFeaturesOf, int kTileRowsOf, int kStagesOf, int kCtasOf, bool kPingPongOf,
          LoadKind kLoad>
struct Config {
  using Params = GroupedGemmSm90Params;
  using Element = typename ElementOf<kIn>::Type;
  using Output = typename ElementOf<kOut>::Type;
  using Activation = typename ActivationOf<kActivation>::Type;
  using Loader = typename LoaderOf<kLoad, Config>::Type;
  using Epilogue = grouped_gemm::Epilogue<Config>;
  static constexpr int kTileFeatures = kTileFeaturesOf;
  static constexpr int kTileRows = kTileRowsOf;
  static constexpr int kStages = kStagesOf;
  static constexpr int kCtas = kCtasOf;
  static constexpr bool kPingPong = kPingPongOf;
  static constexpr int kStagingBytes = staging_bytes(kTileFeaturesOf, kTileRowsOf, kStagesOf);
  static constexpr int kSmemBytes = smem_bytes(kTileFeaturesOf, kTileRowsOf, kStagesOf);
  static constexpr bool kStridedOut = kLoad == LoadKind::kStrided;
  static constexpr bool kHasBias = kHasBiasOf;
  static constexpr bool kGated = device::kIsGated<Activation>;
  static constexpr bool kInterleaved = kActivation == ActivationKind::kSwigluOai;
  /// Weight rows of an output feature.
  static constexpr int kRowsOfFeature = kGated ? 2 : 1;

  /// Token rows that the kernel before writes, tile by tile.
  static __device__ __forceinline__ device::AwaitedRows awaited_rows(const Params& p) {
    if (kLoad != LoadKind::kTma) return {};
    return {p.rows_awaited, p.num_row_counters, static_cast<uint32_t>(p.num_writers),
            static_cast<uint32_t>(p.num_writers_and_reads)};
  }

  static __device__ __forceinline__ int num_feature_tiles(const Params& p) {
    constexpr int kOfCluster = kTileFeatures / kRowsOfFeature * kCtas;
    return (p.num_features + kOfCluster - 1) / kOfCluster;
  }

  static __device__ __forceinline__ Activation activation(const Params& p) {
    if constexpr (kInterleaved) {
      return {p.swiglu_alpha, p.swiglu_limit};
    } else {
      return {};
    }
  }

  static __device__ __forceinline__ device::Groups groups(const Params& p) {
    return {static_cast<device::GroupKind>(p.group_kind),
            p.num_experts,
            p.alignment,
            p.max_m,
            p.num_rows,
            p.metadata,
            p.metadata_stride};
  }

  /// Row of an expert's weights that stands in row `row` of feature tile `feature_tile`; -1: none.
  static __device__ __forceinline__ int64_t weight_row(const Params& p, int feature_tile, int row) {
    const int64_t first = int64_t{feature_tile} * (kTileFeatures / kRowsOfFeature);
    if constexpr (kGated) {
      const int64_t feature = first + row / 16 * 8 + row % 8;
      const int64_t is_up = row / 8 % 2;
      if (feature >= p.num_features) return -1;
      return kInterleaved ? 2 * feature + is_up : feature + is_up * p.up_distance;
    } else {
      const int64_t feature = first + row;
      return feature < p.num_features ? feature : -1;
    }
  }

  /// Into the constant cache of the copy engine, before anything needs them.
  static __device__ __forceinline__ void prefetch_tensor_maps(const Params& p) {
    if (kLoad == LoadKind::kTma && threadIdx.x == 0) {
      device::prefetch_tensor_map(&p.weights);
      device::prefetch_tensor_map(&p.tokens_large);
      device::prefetch_tensor_map(&p.tokens_small);
      device::prefetch_tensor_map(&p.out_large);
      device::prefetch_tensor_map(&p.out_small);
    }
  }
};

/// Turns the accumulators of a finished strip of weight rows into rows of the output.
template <class C>
class Epilogue {
 public:
  using Params = GroupedGemmSm90Params;
  using Store = device::TransposedStore<C>;
  using Accum = float[C::kTileRows / 2];

  __device__ __forceinline__ Epilogue(uint8_t* staging, int barrier) : store_(staging, barrier) {}

  __device__ __forceinline__ void finish(const Params& p, const device::Work& work, int strip,
                                         Accum& accum) {
    using Out = typename C::Output;
    device::OutputTile tile;
    tile.row0 = static_cast<Out*>(p.out) + work.first_row * p.out_row_stride;
    tile.row_stride = p.out_row_stride;
    tile.feature_stride = 1;
    if constexpr (C::kStridedOut) {
      tile.row0 = static_cast<Out*>(tile.row0) + work.expert * p.out_expert_stride;
      tile.feature_stride = p.out_feature_stride;
    }
    tile.map_large = &p.out_large;
    tile.map_small = &p.out_small;
    tile.first_row = work.first_row;
    tile.num_rows = work.num_rows;
    tile.first_feature = strip * Store::kFeatures;
    tile.num_features = p.num_features;
    if constexpr (C::kHasBias) add_bias(p, work.expert, tile.first_feature, accum);
    store_.store(accum, tile, C::activation(p));
  }

  /// Tells the launch after that this warpgroup's part of a row tile is written.
  __device__ __forceinline__ void hand_over(const Params& p, int row_tile) {
    if (p.rows_written == nullptr) return;
    store_.count_written(p.rows_written + min(row_tile, p.num_row_counters));
  }

  __device__ __forceinline__ void drain() { store_.drain(); }

 private:
  static __device__ __forceinline__ void add_bias(const Params& p, int expert, int first_feature,
                                                  Accum& accum) {
    const auto* bias =
        static_cast<const typename C::Element*>(p.bias) + expert * p.bias_expert_stride;
    const int warp = static_cast<int>(threadIdx.x) / device::kWarpThreads % 4;
    const int feature = first_feature + warp * (C::kGated ? 8 : 16) + device::lane_idx() / 4;
    int low = feature;
    int high = feature + 8;
    int num_rows = p.num_features;
    if constexpr (C::kGated) {
      low = C::kInterleaved ? 2 * feature : feature;
      high = C::kInterleaved ? low + 1 : feature + p.num_features;
      num_rows = 2 * p.num_features;
    }
    const auto at = [&](int row) {
      const bool is_there = feature < p.num_features && row < num_rows;
      return is_there ? device::to_float(bias[row * p.bias_row_stride]) : 0.0f;
    };
    Store::add_bias(accum, at(low), at(high));
  }

  Store store_;
};

template <class C>
__global__ void __launch_bounds__(device::kGemmThreads, 1)
    sm90_kernel(const __grid_constant__ GroupedGemmSm90Params params) {
  device::run_weights_on_m<C>(params);
}

/// A row whose neighbour above has another id may begin its expert's segment, likewise at the end:
/// padding may lie between rows of one expert.
__global__ void __launch_bounds__(256) per_row_segments(PerRowSegmentsParams p) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  device::wait_for_previous_kernel();
  if (row >= p.num_rows) return;
  const int32_t* at = p.ids + row * p.ids_stride;
  const int id = *at;
  if (id < 0 || id >= p.num_experts) return;
  int32_t* segment = p.segments + int64_t{2} * id;
  if (row == 0 || at[-p.ids_stride] != id) {
    atomicMin(reinterpret_cast<unsigned*>(segment), static_cast<unsigned>(row));
  }
  if (row + 1 == p.num_rows || at[p.ids_stride] != id) atomicMax(segment + 1, row + 1);
}

}  // namespace tileops::grouped_gemm
