// SPDX-License-Identifier: Apache-2.0
// The router on a GPU: its programs and the launch of fused_topk_sm90.cuh.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/fused_topk/fused_topk_kernel.h"
#include "tileops/ops/moe/fused_topk/fused_topk_sm90_params.h"

namespace tileops::fused_topk {
namespace {

constexpr int64_t kLanes = 32;
constexpr int64_t kExpertsPerLane[] = {1, 2, 4, 8, 12, 16, 64};  // rising
constexpr int64_t kMaxExperts = kLanes * kExpertsPerLane[std::size(kExpertsPerLane) - 1];
constexpr int64_t kKeyBytes = 8;  // of a group, in shared memory
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

const char* type_name(DType dtype) {
  return dtype == DType::kBF16  ? "tileops::device::bf16"
         : dtype == DType::kF16 ? "tileops::device::f16"
                                : "float";
}

cuda::ProgramSpec program_of(DType dtype, int64_t experts_per_lane, bool has_bias) {
  return {.name = fmt::format("fused_topk sm90 {} {} experts{}", dtype_short_name(dtype),
                              kLanes * experts_per_lane, has_bias ? " bias" : ""),
          .source = "#include \"tileops/ops/moe/fused_topk/fused_topk_sm90.cuh\"\n",
          .kernels = {fmt::format("tileops::fused_topk::route_tokens<{}, {}, {}>", type_name(dtype),
                                  experts_per_lane, has_bias)}};
}

/// Every program that selection can reach.
std::vector<cuda::ProgramSpec> programs() {
  std::vector<cuda::ProgramSpec> specs;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int64_t experts_per_lane : kExpertsPerLane) {
      for (const bool has_bias : {false, true}) {
        specs.push_back(program_of(dtype, experts_per_lane, has_bias));
      }
    }
  }
  return specs;
}

[[maybe_unused]] const bool kRegistered = [] {
  cuda::register_programs("fused_topk sm90", programs);
  return true;
}();

Refusal refusal(const Call& call) {
  if (call.num_experts > kMaxExperts) {
    return fmt::format("needs E <= {}, found {}", kMaxExperts, call.num_experts);
  }
  if (call.num_tokens > kMaxTokens) {
    return fmt::format("needs T <= {}, found {}", kMaxTokens, call.num_tokens);
  }
  return std::nullopt;
}

class Sm90Kernel final : public FusedTopKKernel {
 public:
  Sm90Kernel(const Routing& routing, cuda::ProgramSpec program)
      : routing_(routing), program_(std::move(program)) {}

  void list_programs(const ProgramSink& sink) const override { sink(program_.spec()); }

  void run(const Args& args) const override {
    const Stream stream = current_stream(args.gating_output.device());
    const FusedTopKSm90Params params = params_of(args);
    if (params.counts != nullptr) {
      cuda::fill_bytes(params.counts, 0, static_cast<size_t>(params.num_experts) * sizeof(int32_t),
                       stream);
    }
    if (params.num_tokens == 0) return;
    const bool grouped = params.topk_group < params.num_groups;
    const auto grid =
        static_cast<uint32_t>((params.num_tokens + kTokensPerCta - 1) / kTokensPerCta);
    cuda::launch(program_.function(stream),
                 {.grid = {grid},
                  .cta = {kTokensPerCta * kLanes},
                  .smem_bytes = grouped ? kTokensPerCta * params.num_groups * kKeyBytes : 0,
                  .order = cuda::LaunchOrder::kOverlapPrevious},
                 stream, params);
  }

 private:
  FusedTopKSm90Params params_of(const Args& args) const {
    const Tensor& logits = args.gating_output;
    FusedTopKSm90Params p{.logits = logits.data(),
                          .logits_token_stride = logits.strides()[0],
                          .logits_expert_stride = logits.strides()[1],
                          .weights = args.topk_weights.data_as<float>(),
                          .ids = args.topk_ids.data_as<int32_t>(),
                          .num_tokens = logits.shape()[0],
                          .num_experts = static_cast<int32_t>(logits.shape()[1]),
                          .top_k = static_cast<int32_t>(routing_.top_k),
                          .num_groups = static_cast<int32_t>(routing_.num_expert_group),
                          .topk_group = static_cast<int32_t>(routing_.topk_group),
                          .is_softmax = routing_.scoring_func == ScoringFunc::kSoftmax,
                          .renormalize = routing_.renormalize,
                          .scaling = static_cast<float>(routing_.routed_scaling_factor)};
    if (args.correction_bias.defined()) {
      p.bias = args.correction_bias.data_as<float>();
      p.bias_stride = args.correction_bias.strides()[0];
    }
    if (args.tokens_per_expert.defined()) p.counts = args.tokens_per_expert.data_as<int32_t>();
    return p;
  }

  const Routing routing_;
  mutable cuda::LazyProgram program_;
};

EntryFor<FusedTopK> entry_for(const Call& call) {
  const int64_t per_lane =
      *std::find_if(std::begin(kExpertsPerLane), std::end(kExpertsPerLane),
                    [&call](int64_t experts) { return kLanes * experts >= call.num_experts; });
  const cuda::ProgramSpec program = program_of(call.dtype, per_lane, call.has_bias);
  return {Value::List{program.name, call.routing.to_value()},
          [program, routing = call.routing](const BuildOptions&) {
            return std::make_shared<Sm90Kernel>(routing, program);
          }};
}

}  // namespace

Implementation<FusedTopK> sm90_warp_per_token() {
  return {.info = {.key = "sm90_warp_per_token",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90"},
                   .general = true,
                   .batches_launches = true},
          .refusal = refusal,
          .entry_for = entry_for};
}

}  // namespace tileops::fused_topk
