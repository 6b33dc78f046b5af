// SPDX-License-Identifier: Apache-2.0
// The indexed experts of any sizes, strides, alignment and number of routes: a warp an element.
// Launch contract: indexed_expert_mlp_sm90_params.h.
#pragma once

#include "tileops/device/epilogue/activation.cuh"
#include "tileops/device/ptx/convert.cuh"
#include "tileops/device/ptx/threads.cuh"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_sm90_params.h"

namespace tileops::indexed_expert_mlp {

__device__ __forceinline__ int64_t first_element() {
  return static_cast<int64_t>(blockIdx.x) * kWarpsPerCta + device::warp_idx();
}
__device__ __forceinline__ int64_t next_element(int64_t element) {
  return element + static_cast<int64_t>(gridDim.x) * kWarpsPerCta;
}

/// The expert of a route; -1: dropped.
__device__ __forceinline__ int expert_of(const IndexedSm90Params& p, int64_t token, int choice) {
  const int id = static_cast<const int32_t*>(
      p.ids.data)[token * p.ids.row_stride + choice * p.ids.column_stride];
  return static_cast<uint32_t>(id) < static_cast<uint32_t>(p.num_experts) ? id : -1;
}

/// x . row `row` of an expert's weights, and its bias; every lane gets it.
template <class T>
__device__ __forceinline__ float product(const RowsView& w, const RowsView& bias, int expert,
                                         int64_t row, const T* x, int64_t x_stride, int length) {
  const T* weights = static_cast<const T*>(w.data) + expert * w.expert_stride + row * w.row_stride;
  float sum = 0.0f;
#pragma unroll 4
  for (int64_t k = device::lane_idx(); k < length; k += device::kWarpThreads) {
    sum = fmaf(device::to_float(weights[k * w.column_stride]), device::to_float(x[k * x_stride]),
               sum);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (bias.data == nullptr) return sum;
  return sum + device::to_float(static_cast<const T*>(
                   bias.data)[expert * bias.expert_stride + row * bias.row_stride]);
}

template <class T>
__global__ void __launch_bounds__(kWarpsPerCta* device::kWarpThreads)
    gate_up_rows(const __grid_constant__ IndexedSm90Params p) {
  device::wait_for_previous_kernel();
  device::allow_next_kernel();
  const bool interleaved = p.activation.kind == device::ActivationKind::kSwigluOai;
  const int64_t num_elements = p.num_tokens * p.top_k * p.inter;
  for (int64_t at = first_element(); at < num_elements; at = next_element(at)) {
    const int64_t route = at / p.inter, feature = at % p.inter, token = route / p.top_k;
    const int expert = expert_of(p, token, static_cast<int>(route % p.top_k));
    if (expert < 0) continue;
    const T* x = static_cast<const T*>(p.x.data) + token * p.x.row_stride;
    const int64_t gate_row = interleaved ? 2 * feature : feature;
    const int64_t up_row = interleaved ? gate_row + 1 : gate_row + p.inter;
    const float gate =
        product(p.w_gate_up, p.b_gate_up, expert, gate_row, x, p.x.column_stride, p.hidden_size);
    const float up =
        product(p.w_gate_up, p.b_gate_up, expert, up_row, x, p.x.column_stride, p.hidden_size);
    if (device::lane_idx() == 0) {
      static_cast<T*>(p.activated)[at] =
          device::from_float<T>(device::activate(p.activation, gate, up));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kWarpsPerCta* device::kWarpThreads)
    combine_rows(const __grid_constant__ IndexedSm90Params p) {
  device::wait_for_previous_kernel();
  device::allow_next_kernel();
  const int64_t num_elements = p.num_tokens * p.hidden_size;
  for (int64_t at = first_element(); at < num_elements; at = next_element(at)) {
    const int64_t token = at / p.hidden_size, column = at % p.hidden_size;
    float sum = 0.0f;
    for (int choice = 0; choice < p.top_k; ++choice) {
      const int expert = expert_of(p, token, choice);
      if (expert < 0) continue;
      const T* activated =
          static_cast<const T*>(p.activated) + (token * p.top_k + choice) * p.inter;
      const float weight = static_cast<const float*>(
          p.weights.data)[token * p.weights.row_stride + choice * p.weights.column_stride];
      sum = fmaf(weight, product(p.w_down, p.b_down, expert, column, activated, 1, p.inter), sum);
    }
    if (device::lane_idx() == 0) {
      static_cast<T*>(p.out)[token * p.out_row_stride + column * p.out_column_stride] =
          device::from_float<T>(sum * p.scaling);
    }
  }
}

}  // namespace tileops::indexed_expert_mlp
