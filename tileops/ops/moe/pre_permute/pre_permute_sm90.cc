// SPDX-License-Identifier: Apache-2.0
// The pre-permutation on a GPU: the launches of pre_permute_sm90.cuh.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/workspace.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/pre_permute/pre_permute_kernel.h"
#include "tileops/ops/moe/pre_permute/pre_permute_sm90_params.h"

namespace tileops::pre_permute {
namespace {

constexpr int64_t kMaxExperts = 16384;  // a counter each in shared memory
constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kLoneChunkRoutes = 256;  // up to so many, one warp sorts in one launch
constexpr int64_t kRouteStep = 128;
constexpr int64_t kMaxChunks = 512;
constexpr int64_t kMaxColumnTiles = 65535;

enum Kernels : size_t { kCount, kSum, kPlace, kMark, kCopyVectors, kCopyElements };

int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }

cuda::ProgramSpec program() {
  const std::string space = "tileops::pre_permute::";
  return {.name = "pre_permute sm90",
          .source = "#include \"tileops/ops/moe/pre_permute/pre_permute_sm90.cuh\"\n",
          .kernels = {space + "count_routes", space + "sum_chunks", space + "place_routes",
                      space + "mark_rows", space + "copy_rows<tileops::device::Vector16>",
                      space + "copy_rows<unsigned short>"}};
}

[[maybe_unused]] const bool kRegistered = [] {
  cuda::register_programs("pre_permute sm90", [] { return std::vector{program()}; });
  return true;
}();

Refusal refusal(const Call& call) {
  if (call.num_experts > kMaxExperts) {
    return fmt::format("needs E <= {}, found {}", kMaxExperts, call.num_experts);
  }
  if (call.num_tokens > kMaxSize) {
    return fmt::format("needs T <= {}, found {}", kMaxSize, call.num_tokens);
  }
  return std::nullopt;
}

LayoutKind kind_of(const MGroupedLayout& layout) {
  return layout.is_masked()    ? LayoutKind::kMasked
         : layout.is_per_row() ? LayoutKind::kPerRow
                               : LayoutKind::kEndRows;
}

class Sm90Kernel final : public PrePermuteKernel {
 public:
  Sm90Kernel(MGroupedLayout layout, int64_t num_experts)
      : layout_(layout), num_experts_(num_experts), program_(program()) {}

  void list_programs(const ProgramSink& sink) const override { sink(program_.spec()); }

  void run(const Args& args) const override {
    const Stream stream = current_stream(args.hidden_states.device());
    PrePermuteSm90Params p = params_of(args);
    set_chunks(p, stream);
    sort(p, stream);
    copy(p, args, stream);
  }

 private:
  PrePermuteSm90Params params_of(const Args& args) const {
    const Tensor &hidden = args.hidden_states, &ids = args.local_expert_ids;
    return {.expert_ids = ids.data_as<int32_t>(),
            .ids_token_stride = ids.strides()[0],
            .ids_choice_stride = ids.strides()[1],
            .hidden = hidden.data(),
            .hidden_token_stride = hidden.strides()[0],
            .hidden_stride = hidden.strides()[1],
            .expert_input = args.expert_input.data(),
            .metadata = args.layout_metadata.data_as<int32_t>(),
            .inverse = args.inverse_indices.data_as<int32_t>(),
            .hidden_size = hidden.shape()[1],
            .num_rows =
                layout_.is_masked() ? num_experts_ * layout_.max_m() : args.expert_input.shape()[0],
            .num_routes = static_cast<int32_t>(ids.num_elements()),
            .top_k = static_cast<int32_t>(ids.shape()[1]),
            .num_experts = static_cast<int32_t>(num_experts_),
            .layout = kind_of(layout_),
            .alignment = static_cast<int32_t>(layout_.alignment()),
            .max_m = static_cast<int32_t>(layout_.max_m())};
  }

  /// Cuts the routes into chunks and gives them scratch, which is asked for in one size up to
  /// kMaxChunks, so that a stream's workspace need not grow with the tokens.
  void set_chunks(PrePermuteSm90Params& p, Stream stream) const {
    const int64_t per_chunk =
        p.num_routes <= kLoneChunkRoutes
            ? kLoneChunkRoutes
            : ceil_div(ceil_div(p.num_routes, kMaxChunks), kRouteStep) * kRouteStep;
    p.chunk_routes = static_cast<int32_t>(per_chunk);
    p.num_chunks = static_cast<int32_t>(std::max<int64_t>(ceil_div(p.num_routes, per_chunk), 1));
    const int64_t num_words = num_experts_ * (kMaxChunks + 2) + 1;
    const cuda::Workspace space =
        cuda::workspace(stream, num_words * static_cast<int64_t>(sizeof(int32_t)));
    p.chunk_counts = reinterpret_cast<int32_t*>(space.scratch);
    p.totals = p.chunk_counts + num_experts_ * kMaxChunks;
    p.begins = p.totals + num_experts_;
  }

  void sort(const PrePermuteSm90Params& p, Stream stream) const {
    const int64_t counter_bytes = num_experts_ * static_cast<int64_t>(sizeof(int32_t));
    if (p.num_chunks > 1 && num_experts_ > 0) {
      launch(kCount, p.num_chunks, 1, kCtaThreads, counter_bytes, stream, p);
      launch(kSum, ceil_div(num_experts_, kExpertsPerCta), 1, kCtaThreads, 0, stream, p);
    }
    launch(kPlace, p.num_chunks, 1, kLanes, counter_bytes, stream, p);
    if (layout_.is_per_row() && p.num_rows > 0) {
      launch(kMark, ceil_div(p.num_rows, kCtaThreads), 1, kCtaThreads, 0, stream, p);
    }
  }

  void copy(const PrePermuteSm90Params& p, const Args& args, Stream stream) const {
    if (p.num_routes == 0 || p.hidden_size == 0 || num_experts_ == 0) return;
    constexpr int64_t kVectorElements = 8, kVectorBytes = 16;
    const bool vectors = p.hidden_size % kVectorElements == 0 &&
                         is_inner_contiguous(args.hidden_states) &&
                         alignment_of(args.hidden_states) == kVectorBytes &&
                         alignment_of(args.expert_input) == kVectorBytes;
    const int64_t tile = kCtaThreads * (vectors ? kVectorElements : 1);
    launch(vectors ? kCopyVectors : kCopyElements, args.hidden_states.shape()[0],
           std::min(ceil_div(p.hidden_size, tile), kMaxColumnTiles), kCtaThreads, 0, stream, p);
  }

  void launch(size_t kernel, int64_t grid_x, int64_t grid_y, int64_t threads, int64_t smem_bytes,
              Stream stream, const PrePermuteSm90Params& p) const {
    cuda::launch(program_.function(stream, kernel),
                 {.grid = {static_cast<uint32_t>(grid_x), static_cast<uint32_t>(grid_y)},
                  .cta = {static_cast<uint32_t>(threads)},
                  .smem_bytes = smem_bytes,
                  .order = cuda::LaunchOrder::kOverlapPrevious},
                 stream, p);
  }

  static constexpr int64_t kLanes = 32;
  const MGroupedLayout layout_;
  const int64_t num_experts_;
  mutable cuda::LazyProgram program_;
};

}  // namespace

Implementation<PrePermute> sm90_counting_sort() {
  return {.info = {.key = "sm90_counting_sort",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90"},
                   .general = true},
          .refusal = refusal,
          .entry_for = [](const Call& call) -> EntryFor<PrePermute> {
            return {Value::List{call.layout.to_value(), call.num_experts},
                    [layout = call.layout, num_experts = call.num_experts](const BuildOptions&) {
                      return std::make_shared<Sm90Kernel>(layout, num_experts);
                    }};
          }};
}

}  // namespace tileops::pre_permute
