// SPDX-License-Identifier: Apache-2.0
// The pre-permutation on a GPU: the launches of pre_permute_sm90.cuh.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/pre_permute/pre_permute_kernel.h"
#include "tileops/ops/moe/pre_permute/pre_permute_sm90_params.h"
#include "tileops/ops/moe/route_sort_sm90_launch.h"

namespace tileops::pre_permute {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxColumnTiles = 65535;
constexpr int64_t kFewCtas = 512;             // of permute_few: each counts all routes for itself
constexpr int64_t kFewComparisons = 1 << 16;  // of a CTA of permute_few, 1 us
static_assert(int64_t{kFewTopK} * kFewTopK >= kFewComparisons);
static_assert(route_sort::kMaxExperts * kFewRoutes < kMaxSize, "permute_few's keys have 31 bits");

enum Kernels : size_t { kRank, kCopyVectors, kCopyElements, kFewVectors, kFewElements };

int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }

cuda::ProgramSpec program() {
  const std::string space = "tileops::pre_permute::";
  std::vector<std::string> kernels{route_sort::kKernelName};
  for (const char* kernel :
       {"copy_rows<tileops::device::Vector16>", "copy_rows<unsigned short>",
        "permute_few<tileops::device::Vector16>", "permute_few<unsigned short>"}) {
    kernels.push_back(space + kernel);
  }
  return {.name = "pre_permute sm90",
          .source = "#include \"tileops/ops/moe/pre_permute/pre_permute_sm90.cuh\"\n",
          .kernels = kernels};
}

[[maybe_unused]] const bool kRegistered = [] {
  cuda::register_programs("pre_permute sm90", [] { return std::vector{program()}; });
  return true;
}();

Refusal refusal(const Call& call) {
  if (call.num_experts > route_sort::kMaxExperts) {
    return fmt::format("needs E <= {}, found {}", route_sort::kMaxExperts, call.num_experts);
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
    if (are_few(p) && args.local_expert_ids.is_contiguous()) {
      permute(p, args, {kFewVectors, kFewElements, kFewCtas}, stream);
    } else {
      route_sort::take_scratch(p.sort, stream);
      route_sort::rank(p.sort, program_.function(stream, kRank), stream);
      permute(p, args, {kCopyVectors, kCopyElements, kMaxSize}, stream);
    }
  }

 private:
  bool are_few(const PrePermuteSm90Params& p) const {
    return p.sort.num_routes > 0 && p.sort.num_routes <= kFewRoutes &&
           int64_t{p.sort.num_routes} * p.sort.top_k <= kFewComparisons && p.sort.alignment == 1 &&
           !layout_.is_per_row();
  }

  PrePermuteSm90Params params_of(const Args& args) const {
    const Tensor& hidden = args.hidden_states;
    return {.sort = route_sort::params_of(args.local_expert_ids, num_experts_, layout_.alignment()),
            .hidden = hidden.data(),
            .hidden_token_stride = hidden.strides()[0],
            .hidden_stride = hidden.strides()[1],
            .expert_input = args.expert_input.data(),
            .metadata = args.layout_metadata.data_as<int32_t>(),
            .inverse = args.inverse_indices.data_as<int32_t>(),
            .num_tokens = hidden.shape()[0],
            .hidden_size = hidden.shape()[1],
            .num_rows =
                layout_.is_masked() ? num_experts_ * layout_.max_m() : args.expert_input.shape()[0],
            .layout = kind_of(layout_),
            .max_m = static_cast<int32_t>(layout_.max_m())};
  }

  struct CopyKernels {
    size_t vectors, elements;
    int64_t max_ctas;  // as long as the tokens have one each
  };
  void permute(const PrePermuteSm90Params& p, const Args& args, CopyKernels kernels,
               Stream stream) const {
    constexpr int64_t kVectorElements = 8, kVectorBytes = 16;
    const bool vectors = p.hidden_size % kVectorElements == 0 &&
                         is_inner_contiguous(args.hidden_states) &&
                         alignment_of(args.hidden_states) == kVectorBytes &&
                         alignment_of(args.expert_input) == kVectorBytes;
    const int64_t tile = kCtaThreads * (vectors ? kVectorElements : 1);
    const int64_t tiles =
        std::min({ceil_div(p.hidden_size, tile), kMaxColumnTiles,
                  ceil_div(kernels.max_ctas, std::max<int64_t>(p.num_tokens, 1))});
    const int64_t metadata = layout_.is_per_row() ? p.num_rows : num_experts_;
    const int64_t ctas = p.num_tokens + ceil_div(metadata, kCtaThreads);
    if (ctas == 0) return;
    cuda::launch(
        program_.function(stream, vectors ? kernels.vectors : kernels.elements),
        {.grid = {static_cast<uint32_t>(ctas), static_cast<uint32_t>(std::max<int64_t>(tiles, 1))},
         .cta = {kCtaThreads},
         .order = cuda::LaunchOrder::kOverlapPrevious},
        stream, p);
  }

  const MGroupedLayout layout_;
  const int64_t num_experts_;
  mutable cuda::LazyProgram program_;
};

}  // namespace

Implementation<PrePermute> sm90_counting_sort() {
  return {.info = {.key = "sm90_counting_sort",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90"},
                   .general = true,
                   .batches_launches = true},
          .refusal = refusal,
          .entry_for = [](const Call& call) -> EntryFor<PrePermute> {
            return {Value::List{call.layout.to_value(), call.num_experts},
                    [layout = call.layout, num_experts = call.num_experts](const BuildOptions&) {
                      return std::make_shared<Sm90Kernel>(layout, num_experts);
                    }};
          }};
}

}  // namespace tileops::pre_permute
