// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/route_sort_sm90_launch.h"

#include <algorithm>

#include "tileops/cuda/launch.h"
#include "tileops/cuda/workspace.h"

namespace tileops::route_sort {
namespace {

constexpr int64_t kLoneChunkRoutes = 256;  // up to so many, one warp sorts in one launch
constexpr int64_t kRouteStep = 128;
constexpr int64_t kMaxChunks = 512;

int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

std::vector<std::string> kernel_names() {
  return {"tileops::route_sort::count_routes", "tileops::route_sort::sum_chunks"};
}

/// Scratch is asked for in one size up to kMaxChunks, so that a stream's workspace need not grow
/// with the tokens.
RouteSortParams params_of(const Tensor& ids, int64_t num_experts, int64_t alignment,
                          Stream stream) {
  const int64_t num_routes = ids.num_elements();
  const int64_t per_chunk =
      num_routes <= kLoneChunkRoutes
          ? kLoneChunkRoutes
          : ceil_div(ceil_div(num_routes, kMaxChunks), kRouteStep) * kRouteStep;
  const int64_t num_words = num_experts * (kMaxChunks + 3) + 1;
  const cuda::Workspace space =
      cuda::workspace(stream, num_words * static_cast<int64_t>(sizeof(int32_t)));
  auto* words = reinterpret_cast<int32_t*>(space.scratch);
  auto* totals = words + num_experts * kMaxChunks;
  return {.expert_ids = ids.data_as<int32_t>(),
          .ids_token_stride = ids.strides()[0],
          .ids_choice_stride = ids.strides()[1],
          .chunk_counts = words,
          .totals = totals,
          .begins = totals + num_experts,
          .ends = totals + 2 * num_experts + 1,
          .num_routes = static_cast<int32_t>(num_routes),
          .top_k = static_cast<int32_t>(ids.shape()[1]),
          .num_experts = static_cast<int32_t>(num_experts),
          .num_chunks = static_cast<int32_t>(std::max<int64_t>(ceil_div(num_routes, per_chunk), 1)),
          .chunk_routes = static_cast<int32_t>(per_chunk),
          .alignment = static_cast<int32_t>(alignment)};
}

int64_t counter_bytes(const RouteSortParams& p) {
  return p.num_experts * static_cast<int64_t>(sizeof(int32_t));
}

void count(const RouteSortParams& p, const cuda::Function& count_routes,
           const cuda::Function& sum_chunks, Stream stream) {
  if (p.num_chunks == 1 || p.num_experts == 0) return;
  const auto launch = [&](const cuda::Function& function, int64_t grid, int64_t smem_bytes) {
    cuda::launch(function,
                 {.grid = {static_cast<uint32_t>(grid)},
                  .cta = {kCtaThreads},
                  .smem_bytes = smem_bytes,
                  .order = cuda::LaunchOrder::kOverlapPrevious},
                 stream, p);
  };
  launch(count_routes, p.num_chunks, counter_bytes(p));
  launch(sum_chunks, ceil_div(p.num_experts, kExpertsPerCta), 0);
}

}  // namespace tileops::route_sort
