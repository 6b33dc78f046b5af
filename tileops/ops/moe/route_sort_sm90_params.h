// SPDX-License-Identifier: Apache-2.0
// A stable counting sort of routes by expert on a GPU, as its kernels (route_sort_sm90.cuh) take it:
// plain structs, read by NVRTC and by C++.
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::route_sort {

constexpr int32_t kCtaThreads = 128;
constexpr int32_t kExpertsPerCta = 4;  // of sum_chunks

/// A chunk is chunk_routes consecutive routes, which one warp places in their order. With one chunk
/// its counts stay in shared memory; otherwise count_routes and sum_chunks run first.
struct RouteSortParams {
  const int32_t* expert_ids;  // [num_routes / top_k, top_k]; outside [0, num_experts): dropped
  int64_t ids_token_stride;   // strides in elements
  int64_t ids_choice_stride;
  int32_t* chunk_counts;  // [num_experts, num_chunks]; then sums over the chunks before
  int32_t* totals;        // [num_experts]
  int32_t* begins;        // [num_experts + 1]: first rows of the experts
  int32_t* ends;          // [num_experts]: end rows of their routes
  int32_t num_routes;
  int32_t top_k;
  int32_t num_experts;
  int32_t num_chunks;
  int32_t chunk_routes;  // a multiple of 128
  int32_t alignment;     // an expert's rows begin at multiples of it
};

}  // namespace tileops::route_sort
