// SPDX-License-Identifier: Apache-2.0
// A stable counting sort of routes by expert on a GPU, as its kernels (route_sort_sm90.cuh) take it:
// plain structs, read by NVRTC and by C++. rank_routes runs alone; the kernel after it knows where
// every route goes.
#pragma once

#include "tileops/device/ptx/ints.h"

namespace tileops::route_sort {

constexpr int32_t kCtaThreads = 256;

/// A chunk is chunk_routes consecutive routes, which a CTA ranks in their order.
struct RouteSortParams {
  const int32_t* expert_ids;  // [num_routes / top_k, top_k]; outside [0, num_experts): dropped
  int64_t ids_token_stride;   // strides in elements
  int64_t ids_choice_stride;
  int32_t* ranks;         // [num_routes]: among the chunk's routes of the same expert
  int32_t* chunk_counts;  // [num_chunks, num_experts]: routes; in the end, those of earlier chunks
  int32_t* totals;        // [num_experts]: routes
  int32_t* begins;        // [num_experts + 1]: first rows of the experts
  uint32_t* num_done;     // CTAs; zero before and after
  int32_t num_routes;
  int32_t top_k;
  int32_t num_experts;
  int32_t num_chunks;
  int32_t chunk_routes;
  int32_t alignment;  // an expert's rows begin at multiples of it
};

}  // namespace tileops::route_sort
