// SPDX-License-Identifier: Apache-2.0
// The block-aligned order on a GPU: the launches of permute_align_sm90.cuh.
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

enum Kernels : size_t { kCount, kSum, kPlace, kMark };

cuda::ProgramSpec program() {
  std::vector<std::string> kernels = route_sort::kernel_names();
  kernels.emplace_back("tileops::permute_align::place_routes");
  kernels.emplace_back("tileops::permute_align::mark_rows");
  return {.name = "permute_align sm90",
          .source = "#include \"tileops/ops/moe/permute_align/permute_align_sm90.cuh\"\n",
          .kernels = kernels};
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
    const PermuteAlignSm90Params p{
        .sort = route_sort::params_of(args.topk_ids, num_experts_, block_size_, stream),
        .sorted = args.sorted_route_ids.data_as<int32_t>(),
        .block_experts = args.block_expert_ids.data_as<int32_t>(),
        .num_padded_rows = args.num_padded_rows.data_as<int32_t>(),
        .num_rows = args.sorted_route_ids.num_elements()};
    route_sort::count(p.sort, program_.function(stream, kCount), program_.function(stream, kSum),
                      stream);
    launch(kPlace, p.sort.num_chunks, kLanes, route_sort::counter_bytes(p.sort), stream, p);
    if (p.num_rows > 0) {
      launch(kMark, (p.num_rows + kCtaThreads - 1) / kCtaThreads, kCtaThreads, 0, stream, p);
    }
  }

 private:
  void launch(size_t kernel, int64_t grid, uint32_t threads, int64_t smem_bytes, Stream stream,
              const PermuteAlignSm90Params& p) const {
    cuda::launch(program_.function(stream, kernel),
                 {.grid = {static_cast<uint32_t>(grid)},
                  .cta = {threads},
                  .smem_bytes = smem_bytes,
                  .order = cuda::LaunchOrder::kOverlapPrevious},
                 stream, p);
  }

  static constexpr uint32_t kLanes = 32;
  const int64_t num_experts_;
  const int64_t block_size_;
  mutable cuda::LazyProgram program_;
};

}  // namespace

Implementation<PermuteAlign> sm90_counting_sort() {
  return {.info = {.key = "sm90_counting_sort",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90"},
                   .general = true},
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
