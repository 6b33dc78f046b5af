// SPDX-License-Identifier: Apache-2.0
// Router, permutations, experts and the whole layer through the public ops on a GPU: the median of
// single calls after a flush of L2, and of back-to-back calls with several inputs in a CUDA graph;
// then the host's part of an eager call.
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tileops/core/error.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"
#include "tileops/perf/random_tensor.h"
#include "tileops/perf/timer.h"

namespace tileops {
namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};

/// Values in ±scale.
Tensor random_on_gpu(const Shape& shape, DType dtype, uint64_t seed, float scale) {
  return perf::random_tensor(shape, dtype, kCuda0, seed, scale);
}

/// `calls`: the same work on different inputs.
void print_times(const char* what, const perf::Calls& calls) {
  const perf::CallTimes times = perf::time_calls(kCuda0, calls);
  std::printf("%-44s %9.2f us single, %9.2f us back to back\n", what, times.single,
              times.back_to_back);
  std::fflush(stdout);
}

void print_router(const char* what, const Routing& routing, int64_t num_experts, bool has_bias) {
  const FusedTopKFwdOp op(routing);
  const Tensor bias = has_bias ? random_on_gpu({num_experts}, DType::kF32, 9, 0.1F) : Tensor();
  std::vector<std::function<void()>> calls;
  for (uint64_t i = 0; i < 8; ++i) {
    const Tensor gating = random_on_gpu({4096, num_experts}, DType::kF32, i, 3);
    calls.emplace_back([&op, gating, bias] { op(gating, bias); });
  }
  print_times(what, calls);
}

struct Routed {
  Tensor weights, ids;
};

Routed route(int64_t tokens, int64_t experts, uint64_t seed) {
  const FusedTopKFwdOp op({.top_k = 8, .renormalize = true});
  const auto routed = op(random_on_gpu({tokens, experts}, DType::kF32, seed, 3));
  return {routed.topk_weights, routed.topk_ids};
}

/// The permutations of DeepSeek-V3 at 4096 tokens.
void print_permutations() {
  const auto layout = MGroupedLayout::contiguous();
  const MoEPrePermuteFwdOp pre(layout, 256);
  const MoEPostPermuteFwdOp post(layout);
  const Tensor out = Tensor::empty({4096, 7168}, DType::kBF16, kCuda0);
  std::vector<std::function<void()>> pre_calls, post_calls;
  for (uint64_t i = 0; i < 3; ++i) {
    const Tensor hidden = random_on_gpu({4096, 7168}, DType::kBF16, i, 1);
    const Routed routed = route(4096, 256, 10 + i);
    const auto permuted = pre(hidden, routed.ids);
    pre_calls.emplace_back([&pre, hidden, routed] { pre(hidden, routed.ids); });
    post_calls.emplace_back([&post, &out, permuted, routed] {
      post(permuted.expert_input, routed.weights, permuted.inverse_indices, out);
    });
  }
  print_times("pre-permute DeepSeek-V3 T=4096", pre_calls);
  print_times("post-permute DeepSeek-V3 T=4096", post_calls);
}

/// The routed experts and the whole layer of Qwen3-30B-A3B.
void print_experts(const Tensor& w_gate_up, const Tensor& w_down, int64_t tokens) {
  const FusedMoEExpertsFwdOp experts;
  const FusedMoEFwdOp layer({.top_k = 8, .renormalize = true});
  const Tensor workspace = Tensor::empty(
      {FusedMoEExpertsFwdOp::workspace_bytes(tokens, 8, 128, 2048, 768)}, DType::kU8, kCuda0);
  const Tensor output = Tensor::empty({tokens, 2048}, DType::kBF16, kCuda0);
  std::vector<std::function<void()>> expert_calls, layer_calls;
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor hidden = random_on_gpu({tokens, 2048}, DType::kBF16, i, 1);
    const Tensor gating = random_on_gpu({tokens, 128}, DType::kF32, 20 + i, 3);
    const Routed routed = route(tokens, 128, 10 + i);
    expert_calls.emplace_back([&, hidden, routed] {
      experts(hidden, routed.weights, routed.ids, w_gate_up, w_down,
              {.output = output, .workspace = workspace});
    });
    layer_calls.emplace_back([&, hidden, gating] {
      layer(hidden, gating, w_gate_up, w_down, {.workspace = workspace});
    });
  }
  print_times(("experts Qwen3-30B T=" + std::to_string(tokens)).c_str(), expert_calls);
  print_times(("layer Qwen3-30B T=" + std::to_string(tokens)).c_str(), layer_calls);
}

void print_host_cost(const char* what, const std::function<void()>& call) {
  std::printf("host cost, %-33s %9.2f us a call\n", what, perf::host_us(kCuda0, {call}));
}

void print_host_costs() {
  const FusedMoEFwdOp layer({.top_k = 2, .renormalize = true});
  const FusedMoEExpertsFwdOp experts;
  const FusedTopKFwdOp router({.top_k = 2});
  const Tensor hidden = random_on_gpu({4, 256}, DType::kBF16, 1, 1),
               gating = random_on_gpu({4, 8}, DType::kF32, 2, 1),
               w_gate_up = random_on_gpu({8, 512, 256}, DType::kBF16, 3, 0.1F),
               w_down = random_on_gpu({8, 256, 256}, DType::kBF16, 4, 0.1F);
  const auto routed = router(gating);
  print_host_cost("FusedTopKFwdOp", [&] { router(gating); });
  print_host_cost("FusedMoEExpertsFwdOp", [&] {
    experts(hidden, routed.topk_weights, routed.topk_ids, w_gate_up, w_down);
  });
  print_host_cost("FusedMoEFwdOp", [&] { layer(hidden, gating, w_gate_up, w_down); });
}

void print_all() {
  print_host_costs();
  print_router("top-k T=4096 E128 k8 softmax", {.top_k = 8, .renormalize = true}, 128, false);
  print_router("top-k T=4096 E384 k8 sigmoid with bias",
               {.top_k = 8, .scoring_func = ScoringFunc::kSigmoid, .renormalize = true}, 384, true);
  print_permutations();
  const Tensor w_gate_up = random_on_gpu({128, 1536, 2048}, DType::kBF16, 1, 0.05F);
  const Tensor w_down = random_on_gpu({128, 2048, 768}, DType::kBF16, 2, 0.05F);
  for (const int64_t tokens : {1, 16, 128, 1024, 8192}) print_experts(w_gate_up, w_down, tokens);
}

}  // namespace
}  // namespace tileops

int main() {
  try {
    tileops::print_all();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_moe_bench: %s\n", error.what());
    return 1;
  }
}
