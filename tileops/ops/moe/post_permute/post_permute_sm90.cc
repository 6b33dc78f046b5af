// SPDX-License-Identifier: Apache-2.0
// The post-permutation on a GPU: its programs and the launch of post_permute_sm90.cuh.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/post_permute/post_permute_kernel.h"
#include "tileops/ops/moe/post_permute/post_permute_sm90_params.h"

namespace tileops::post_permute {
namespace {

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxColumnTiles = 65535;
constexpr int64_t kVectorBytes = 16;

enum Kernels : size_t { kVectors, kElements };

int64_t ceil_div(int64_t value, int64_t by) { return (value + by - 1) / by; }

const char* type_name(DType dtype) {
  return dtype == DType::kBF16  ? "tileops::device::bf16"
         : dtype == DType::kF16 ? "tileops::device::f16"
                                : "float";
}

cuda::ProgramSpec program_of(DType in, DType out) {
  const std::string types = fmt::format("{}, {}", type_name(in), type_name(out));
  return {.name = fmt::format("post_permute sm90 {} to {}", dtype_short_name(in),
                              dtype_short_name(out)),
          .source = "#include \"tileops/ops/moe/post_permute/post_permute_sm90.cuh\"\n",
          .kernels = {fmt::format("tileops::post_permute::combine_rows<{}, true>", types),
                      fmt::format("tileops::post_permute::combine_rows<{}, false>", types)}};
}

[[maybe_unused]] const bool kRegistered = [] {
  cuda::register_programs("post_permute sm90", [] {
    std::vector<cuda::ProgramSpec> specs;
    for (const DType in : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const DType out : {DType::kBF16, DType::kF16, DType::kF32}) {
        specs.push_back(program_of(in, out));
      }
    }
    return specs;
  });
  return true;
}();

class Sm90Kernel final : public PostPermuteKernel {
 public:
  explicit Sm90Kernel(const Call& call)
      : layout_(call.layout),
        scaling_(static_cast<float>(call.routed_scaling_factor)),
        program_(program_of(call.dtype, call.out_dtype)) {}

  void list_programs(const ProgramSink& sink) const override { sink(program_.spec()); }

  void run(const Args& args) const override {
    if (args.out.num_elements() == 0) return;
    const Stream stream = current_stream(args.out.device());
    const bool vectors = fits_vectors(args);
    const int64_t columns =
        vectors ? kVectorBytes / dtype_bytes(args.expert_output.dtype()) : int64_t{1};
    const int64_t tiles = ceil_div(args.out.shape()[1], kCtaThreads * columns);
    const auto num_tokens = static_cast<uint32_t>(args.out.shape()[0]);
    cuda::launch(program_.function(stream, vectors ? kVectors : kElements),
                 {.grid = {num_tokens, static_cast<uint32_t>(std::min(tiles, kMaxColumnTiles))},
                  .cta = {kCtaThreads},
                  .order = cuda::LaunchOrder::kOverlapPrevious},
                 stream, params_of(args));
  }

 private:
  static bool fits_vectors(const Args& args) {
    const Tensor &rows = args.expert_output, &out = args.out;
    return out.shape()[1] * dtype_bytes(rows.dtype()) % kVectorBytes == 0 &&
           is_inner_contiguous(rows) && is_inner_contiguous(out) &&
           alignment_of(rows) == kVectorBytes && alignment_of(out) == kVectorBytes;
  }

  PostPermuteSm90Params params_of(const Args& args) const {
    const RowMatrix rows = row_matrix(layout_, args.expert_output);
    return {.rows = args.expert_output.data(),
            .row_stride = rows.row_stride,
            .column_stride = rows.column_stride,
            .slab_stride = rows.slab_stride,
            .weights = args.topk_weights.data_as<float>(),
            .weights_token_stride = args.topk_weights.strides()[0],
            .weights_choice_stride = args.topk_weights.strides()[1],
            .inverse = args.inverse_indices.data_as<int32_t>(),
            .inverse_stride = args.inverse_indices.strides()[0],
            .out = args.out.data(),
            .out_token_stride = args.out.strides()[0],
            .out_column_stride = args.out.strides()[1],
            .hidden_size = args.out.shape()[1],
            .num_rows = rows.num_rows,
            .rows_per_slab = rows.rows_per_slab,
            .has_slabs = !rows.is_flat(),
            .top_k = static_cast<int32_t>(args.topk_weights.shape()[1]),
            .scaling = scaling_};
  }

  const MGroupedLayout layout_;
  const float scaling_;
  mutable cuda::LazyProgram program_;
};

}  // namespace

Implementation<PostPermute> sm90_weighted_sum() {
  return {.info = {.key = "sm90_weighted_sum",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90"},
                   .general = true,
                   .batches_launches = true},
          .refusal = [](const Call& call) -> Refusal {
            if (call.num_tokens <= kMaxTokens) return std::nullopt;
            return fmt::format("needs T <= {}, found {}", kMaxTokens, call.num_tokens);
          },
          .entry_for = [](const Call& call) -> EntryFor<PostPermute> {
            return {Value::List{call.layout.to_value(), call.routed_scaling_factor,
                                dtype_short_name(call.dtype), dtype_short_name(call.out_dtype)},
                    [call](const BuildOptions&) { return std::make_shared<Sm90Kernel>(call); }};
          }};
}

}  // namespace tileops::post_permute
