// SPDX-License-Identifier: Apache-2.0
// The host side of the GPU's counting sort of routes by expert.
#pragma once

#include "tileops/core/stream.h"
#include "tileops/core/tensor.h"
#include "tileops/cuda/module.h"
#include "tileops/ops/moe/route_sort_sm90_params.h"

namespace tileops::route_sort {

inline constexpr int64_t kMaxExperts = 16384;  // a counter each in shared memory

inline constexpr const char* kKernelName = "tileops::route_sort::rank_routes";

/// The routes of `ids` int32 [T, K], cut into chunks; without the scratch that rank_routes needs.
RouteSortParams params_of(const Tensor& ids, int64_t num_experts, int64_t alignment);

/// Gives them scratch of the stream's workspace. Errors: kOutOfMemory, kInternal (the driver's).
void take_scratch(RouteSortParams& p, Stream stream);

/// Launches rank_routes. Errors: kInternal (the driver's).
void rank(const RouteSortParams& p, const cuda::Function& rank_routes, Stream stream);

}  // namespace tileops::route_sort
