// SPDX-License-Identifier: Apache-2.0
// The post-permutation on a GPU: each thread sums some columns of a token over its routes, in
// rising order. The launch contract is in post_permute_sm90_params.h.
#pragma once

#include "tileops/device/ptx/convert.cuh"
#include "tileops/device/ptx/memory.cuh"
#include "tileops/device/ptx/threads.cuh"
#include "tileops/ops/moe/post_permute/post_permute_sm90_params.h"

namespace tileops::post_permute {

using device::Vector16;

struct alignas(8) Vector8 {
  uint32_t word[2];
};

__device__ __forceinline__ int64_t row_offset(const PostPermuteSm90Params& p, int64_t row) {
  if (p.has_slabs == 0) return row * p.row_stride;
  return row / p.rows_per_slab * p.slab_stride + row % p.rows_per_slab * p.row_stride;
}

/// What a thread reads of a row: one element, or a vector of them.
template <class In, bool kVector>
struct Piece;

template <class In>
struct Piece<In, false> {
  static constexpr int kColumns = 1;
  static constexpr int kRoutesAhead = 4;  // rows in flight of a thread
  float element = 0.0f;
  static __device__ __forceinline__ Piece of(const In* source) {
    return {device::to_float(*source)};
  }
  __device__ __forceinline__ float value(int) const { return element; }
};

template <class In>
struct Piece<In, true> {
  static constexpr int kColumns = 16 / sizeof(In);
  static constexpr int kRoutesAhead = 8;
  Vector16 vector = {};
  static __device__ __forceinline__ Piece of(const In* source) {
    return {*reinterpret_cast<const Vector16*>(source)};
  }
  __device__ __forceinline__ float value(int i) const {
    if constexpr (sizeof(In) == 4) {
      return __uint_as_float(vector.word[i]);
    } else {
      return device::to_float(In{static_cast<uint16_t>(vector.word[i / 2] >> (i % 2 * 16))});
    }
  }
};

/// Rounds and stores neighbouring columns.
template <class Out, int kColumns>
__device__ __forceinline__ void store_columns(Out* out, const float (&sum)[kColumns]) {
  if constexpr (kColumns == 1) {
    *out = device::from_float<Out>(sum[0]);
  } else if constexpr (sizeof(Out) == 4) {
#pragma unroll
    for (int i = 0; i < kColumns; i += 4) {
      *reinterpret_cast<Vector16*>(out + i) = {
          {__float_as_uint(sum[i]), __float_as_uint(sum[i + 1]), __float_as_uint(sum[i + 2]),
           __float_as_uint(sum[i + 3])}};
    }
  } else {
#pragma unroll
    for (int i = 0; i < kColumns; i += 8) {
      const uint32_t first = device::pack2<Out>(sum[i], sum[i + 1]);
      const uint32_t second = device::pack2<Out>(sum[i + 2], sum[i + 3]);
      if constexpr (kColumns == 4) {
        *reinterpret_cast<Vector8*>(out) = {{first, second}};
      } else {
        *reinterpret_cast<Vector16*>(out + i) = {{first, second,
                                                  device::pack2<Out>(sum[i + 4], sum[i + 5]),
                                                  device::pack2<Out>(sum[i + 6], sum[i + 7])}};
      }
    }
  }
}

/// Adds the next kRoutesAhead routes, from `first` on, to `sum`; all their rows are read first.
template <class In, bool kVector, int kColumns>
__device__ __forceinline__ void add_routes(const PostPermuteSm90Params& p, int64_t token, int first,
                                           int64_t column, float (&sum)[kColumns]) {
  constexpr int kRoutesAhead = Piece<In, kVector>::kRoutesAhead;
  Piece<In, kVector> pieces[kRoutesAhead];
  float weights[kRoutesAhead];
#pragma unroll
  for (int i = 0; i < kRoutesAhead; ++i) {
    const int k = first + i;
    weights[i] = 0.0f;
    if (k >= p.top_k) continue;
    const int64_t row = p.inverse[(token * p.top_k + k) * p.inverse_stride];
    if (row < 0 || row >= p.num_rows) continue;
    weights[i] = p.weights[token * p.weights_token_stride + k * p.weights_choice_stride];
    const auto* source = static_cast<const In*>(p.rows) + row_offset(p, row);
    pieces[i] = Piece<In, kVector>::of(source + (kVector ? column : column * p.column_stride));
  }
#pragma unroll
  for (int i = 0; i < kRoutesAhead; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sum[j] = fmaf(weights[i], pieces[i].value(j), sum[j]);
  }
}

template <class In, class Out, bool kVector>
__global__ void __launch_bounds__(kCtaThreads)
    combine_rows(const __grid_constant__ PostPermuteSm90Params p) {
  device::wait_for_previous_kernel();
  device::allow_next_kernel();
  constexpr int kColumns = Piece<In, kVector>::kColumns;
  constexpr int kRoutesAhead = Piece<In, kVector>::kRoutesAhead;
  const int64_t token = blockIdx.x;
  auto* out = static_cast<Out*>(p.out) + token * p.out_token_stride;
  const int64_t step = static_cast<int64_t>(gridDim.y) * kCtaThreads * kColumns;
  for (int64_t column = (static_cast<int64_t>(blockIdx.y) * kCtaThreads + threadIdx.x) * kColumns;
       column < p.hidden_size; column += step) {
    float sum[kColumns] = {};
    for (int first = 0; first < p.top_k; first += kRoutesAhead) {
      add_routes<In, kVector>(p, token, first, column, sum);
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sum[j] *= p.scaling;
    store_columns(out + (kVector ? column : column * p.out_column_stride), sum);
  }
}

}  // namespace tileops::post_permute
