// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/route_sort_sm90_launch.h"

#include <algorithm>

#include "tileops/cuda/launch.h"
#include "tileops/cuda/workspace.h"

namespace tileops::route_sort {
namespace {

constexpr int64_t kLeastChunkRoutes = 128;
constexpr int64_t kMaxChunks = 64;  // which one CTA sums

int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

RouteSortParams params_of(const Tensor& ids, int64_t num_experts, int64_t alignment) {
  const int64_t num_routes = ids.num_elements();
  const int64_t chunk_routes = std::max(ceil_div(num_routes, kMaxChunks), kLeastChunkRoutes);
  return {
      .expert_ids = ids.data_as<int32_t>(),
      .ids_token_stride = ids.strides()[0],
      .ids_choice_stride = ids.strides()[1],
      .num_routes = static_cast<int32_t>(num_routes),
      .top_k = static_cast<int32_t>(ids.shape()[1]),
      .num_experts = static_cast<int32_t>(num_experts),
      .num_chunks = static_cast<int32_t>(std::max<int64_t>(ceil_div(num_routes, chunk_routes), 1)),
      .chunk_routes = static_cast<int32_t>(chunk_routes),
      .alignment = static_cast<int32_t>(alignment)};
}

/// In one size up to millions of routes, so that a stream's workspace need not grow with the
/// tokens.
void take_scratch(RouteSortParams& p, Stream stream) {
  const int64_t num_experts = p.num_experts;
  const int64_t num_words = num_experts * (kMaxChunks + 2) + 1 + p.num_routes;
  const cuda::Workspace space =
      cuda::workspace(stream, num_words * static_cast<int64_t>(sizeof(int32_t)));
  p.chunk_counts = reinterpret_cast<int32_t*>(space.scratch);
  p.totals = p.chunk_counts + num_experts * kMaxChunks;
  p.begins = p.totals + num_experts;
  p.ranks = p.begins + num_experts + 1;
  p.num_done = reinterpret_cast<uint32_t*>(space.zeroed);
}

void rank(const RouteSortParams& p, const cuda::Function& rank_routes, Stream stream) {
  cuda::launch(rank_routes,
               {.grid = {static_cast<uint32_t>(p.num_chunks)},
                .cta = {kCtaThreads},
                .smem_bytes = p.num_experts * static_cast<int64_t>(sizeof(int32_t)),
                .order = cuda::LaunchOrder::kOverlapPrevious},
               stream, p);
}

}  // namespace tileops::route_sort
