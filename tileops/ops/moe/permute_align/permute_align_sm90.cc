// SPDX-License-Identifier: Apache-2.0
// The block-aligned order on a GPU: the launches of permute_align_sm90.cuh.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/permute_align/permute_align_kernel.h"
#include "tileops/ops/moe/permute_align/permute_align_sm90_params.h"
#include "tileops/ops/moe/route_sort_sm90_launch.h"

namespace tileops::permute_align {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

enum Kernels : size_t { kRank, kFill };

cuda::ProgramSpec program() {
  return {.name = "permute_align sm90",
          .source = "#include \"tileops/ops/moe/permute_align/permute_align_sm90.cuh\"\n",
          .kernels = {route_sort::kKernelName, "tileops::permute_align::fill_rows"}};
}

[[maybe_unused]] const bool kRegistered = [] {
  cuda::register_programs("permute_align sm90", [] { return std::vector{program()}; });
  return true;
}();

Refusal refusal(const Call& call) {
  if (call.num_experts > route_sort::kMaxExperts) {
    return fmt::format("needs E <= {}, found {}", route_sort::kMaxExperts, call.num_experts);
  }
  if (call.block_size > kMaxSize) {
    return fmt::format("needs block_size <= {}, found {}", kMaxSize, call.block_size);
  }
  return std::nullopt;
}

class Sm90Kernel final : public PermuteAlignKernel {
 public:
  Sm90Kernel(int64_t num_experts, int64_t block_size)
      : num_experts_(num_experts), block_size_(block_size), program_(program()) {}

  void list_programs(const ProgramSink& sink) const override { sink(program_.spec()); }

  void run(const Args& args) const override {
    const Stream stream = current_stream(args.topk_ids.device());
    PermuteAlignSm90Params p{
        .sort = route_sort::params_of(args.topk_ids, num_experts_, block_size_),
        .sorted = args.sorted_route_ids.data_as<int32_t>(),
        .block_experts = args.block_expert_ids.data_as<int32_t>(),
        .num_padded_rows = args.num_padded_rows.data_as<int32_t>(),
        .num_rows = args.sorted_route_ids.num_elements()};
    route_sort::take_scratch(p.sort, stream);
    route_sort::rank(p.sort, program_.function(stream, kRank), stream);
    const int64_t threads = std::max<int64_t>({1, p.num_rows, p.sort.num_routes});
    cuda::launch(program_.function(stream, kFill),
                 {.grid = {static_cast<uint32_t>((threads + kCtaThreads - 1) / kCtaThreads)},
                  .cta = {kCtaThreads},
                  .order = cuda::LaunchOrder::kOverlapPrevious},
                 stream, p);
  }

 private:
  const int64_t num_experts_;
  const int64_t block_size_;
  mutable cuda::LazyProgram program_;
};

}  // namespace

Implementation<PermuteAlign> sm90_counting_sort() {
  return {.info = {.key = "sm90_counting_sort",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90"},
                   .general = true,
                   .batches_launches = true},
          .refusal = refusal,
          .entry_for = [](const Call& call) -> EntryFor<PermuteAlign> {
            return {Value::List{call.num_experts, call.block_size},
                    [num_experts = call.num_experts,
                     block_size = call.block_size](const BuildOptions&) {
                      return std::make_shared<Sm90Kernel>(num_experts, block_size);
                    }};
          }};
}

}  // namespace tileops::permute_align
