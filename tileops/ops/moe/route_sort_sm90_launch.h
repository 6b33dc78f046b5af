// SPDX-License-Identifier: Apache-2.0
// The host side of the GPU's counting sort of routes by expert.
#pragma once

#include <string>
#include <vector>

#include "tileops/core/stream.h"
#include "tileops/core/tensor.h"
#include "tileops/cuda/module.h"
#include "tileops/ops/moe/route_sort_sm90_params.h"

namespace tileops::route_sort {

inline constexpr int64_t kMaxExperts = 16384;  // a counter each in shared memory

/// The kernels that come before one that places routes: indices 0 and 1 of a program.
std::vector<std::string> kernel_names();

/// Cuts the routes of `ids` int32 [T, K] into chunks, and gives them scratch of the stream's
/// workspace. Errors: kOutOfMemory, kInternal (the driver's).
RouteSortParams params_of(const Tensor& ids, int64_t num_experts, int64_t alignment, Stream stream);

/// Dynamic shared memory of count_routes and of a kernel that places a chunk.
int64_t counter_bytes(const RouteSortParams& p);

/// Counts where there are several chunks. Errors: kInternal (the driver's).
void count(const RouteSortParams& p, const cuda::Function& count_routes,
           const cuda::Function& sum_chunks, Stream stream);

}  // namespace tileops::route_sort
