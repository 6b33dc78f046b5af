// SPDX-License-Identifier: Apache-2.0
// Router, permutations, experts and the whole layer through the public ops on a GPU: the median of
// single calls after a flush of L2, and of back-to-back calls with several inputs in a CUDA graph;
// then the host's part of an eager call.
//   gpu_moe_bench [host] [router] [permute] [shared] [qwen3] [mixtral] [deepseek]
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tileops/core/error.h"
#include "tileops/cuda/launch_batch.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_op.h"
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

/// A model's routed experts.
struct Model {
  const char* name;
  int64_t experts, hidden, inter, top_k;
};
constexpr Model kQwen3{"Qwen3-30B", 128, 2048, 768, 8};
constexpr Model kMixtral{"Mixtral", 8, 4096, 14336, 2};
constexpr Model kDeepSeek{"DeepSeek-V3", 256, 7168, 2048, 8};

std::string label(const char* what, const Model& m, int64_t tokens, const char* path = "") {
  return std::string(what) + " " + m.name + " T=" + std::to_string(tokens) + path;
}

struct Weights {
  Tensor gate_up, down;
  explicit Weights(const Model& m)
      : gate_up(random_on_gpu({m.experts, 2 * m.inter, m.hidden}, DType::kBF16, 1, 0.05F)),
        down(random_on_gpu({m.experts, m.hidden, m.inter}, DType::kBF16, 2, 0.05F)) {}
};

struct Routed {
  Tensor weights, ids;
};

Routed route(const Model& m, int64_t tokens, uint64_t seed) {
  const FusedTopKFwdOp op({.top_k = m.top_k, .renormalize = true});
  const auto routed = op(random_on_gpu({tokens, m.experts}, DType::kF32, seed, 3));
  return {routed.topk_weights, routed.topk_ids};
}

/// The pre-permutation alone.
void print_pre_permute(const Model& m, int64_t tokens) {
  const MoEPrePermuteFwdOp pre(MGroupedLayout::contiguous(), m.experts);
  std::vector<std::function<void()>> calls;
  for (uint64_t i = 0; i < 8; ++i) {
    const Tensor hidden = random_on_gpu({tokens, m.hidden}, DType::kBF16, i, 1);
    const Routed routed = route(m, tokens, 10 + i);
    calls.emplace_back([&pre, hidden, routed] { pre(hidden, routed.ids); });
  }
  print_times(label("pre-permute", m, tokens).c_str(), calls);
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
    const Routed routed = route(kDeepSeek, 4096, 10 + i);
    const auto permuted = pre(hidden, routed.ids);
    pre_calls.emplace_back([&pre, hidden, routed] { pre(hidden, routed.ids); });
    post_calls.emplace_back([&post, &out, permuted, routed] {
      post(permuted.expert_input, routed.weights, permuted.inverse_indices, out);
    });
  }
  print_times("pre-permute DeepSeek-V3 T=4096", pre_calls);
  print_times("post-permute DeepSeek-V3 T=4096", post_calls);
}

/// The shared expert of DeepSeek-V3.
void print_shared_expert() {
  const SharedExpertMLPFwdOp op;
  const Tensor w_gate_up = random_on_gpu({2 * 2048, 7168}, DType::kBF16, 1, 0.05F),
               w_down = random_on_gpu({7168, 2048}, DType::kBF16, 2, 0.05F);
  for (const int64_t tokens : {1, 32, 4096}) {
    const Tensor out = Tensor::empty({tokens, 7168}, DType::kBF16, kCuda0);
    std::vector<std::function<void()>> calls;
    for (uint64_t i = 0; i < 4; ++i) {
      const Tensor hidden = random_on_gpu({tokens, 7168}, DType::kBF16, i, 1);
      calls.emplace_back([&, hidden] { op(hidden, w_gate_up, w_down, out); });
    }
    print_times(("shared expert DeepSeek-V3 T=" + std::to_string(tokens)).c_str(), calls);
  }
}

/// Calls of the routed experts on `num_inputs` inputs.
std::vector<std::function<void()>> expert_calls(const FusedMoEExpertsFwdOp& experts, const Model& m,
                                                const Weights& w, int64_t tokens,
                                                uint64_t num_inputs) {
  const Tensor workspace = Tensor::empty(
      {FusedMoEExpertsFwdOp::workspace_bytes(tokens, m.top_k, m.experts, m.hidden, m.inter)},
      DType::kU8, kCuda0);
  const Tensor output = Tensor::empty({tokens, m.hidden}, DType::kBF16, kCuda0);
  std::vector<std::function<void()>> calls;
  for (uint64_t i = 0; i < num_inputs; ++i) {
    const Tensor hidden = random_on_gpu({tokens, m.hidden}, DType::kBF16, i, 1);
    const Routed routed = route(m, tokens, 10 + i);
    calls.emplace_back([&experts, w, hidden, routed, workspace, output] {
      experts(hidden, routed.weights, routed.ids, w.gate_up, w.down,
              {.output = output, .workspace = workspace});
    });
  }
  return calls;
}

/// The paths of few routes beside each other.
void print_small_routes(const Model& m, const Weights& w) {
  const FusedMoEExpertsFwdOp indexed({.small_route = SmallRoute::kAlways}),
      permuted({.small_route = SmallRoute::kNever});
  for (const int64_t tokens : {1, 2, 4, 8, 16, 32}) {
    print_times(label("experts", m, tokens, " indexed").c_str(),
                expert_calls(indexed, m, w, tokens, 4));
    print_times(label("experts", m, tokens, " permuted").c_str(),
                expert_calls(permuted, m, w, tokens, 4));
  }
}

void print_experts(const Model& m, const Weights& w, int64_t tokens) {
  const FusedMoEExpertsFwdOp experts;
  print_times(label("experts", m, tokens).c_str(), expert_calls(experts, m, w, tokens, 4));
}

/// The whole layer with its router.
void print_layer(const Model& m, const Weights& w, int64_t tokens) {
  const FusedMoEFwdOp layer({.top_k = m.top_k, .renormalize = true});
  const Tensor workspace = Tensor::empty(
      {FusedMoEExpertsFwdOp::workspace_bytes(tokens, m.top_k, m.experts, m.hidden, m.inter)},
      DType::kU8, kCuda0);
  std::vector<std::function<void()>> calls;
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor hidden = random_on_gpu({tokens, m.hidden}, DType::kBF16, i, 1);
    const Tensor gating = random_on_gpu({tokens, m.experts}, DType::kF32, 20 + i, 3);
    calls.emplace_back([&, hidden, gating] {
      layer(hidden, gating, w.gate_up, w.down, {.workspace = workspace});
    });
  }
  print_times(label("layer", m, tokens).c_str(), calls);
}

/// `calls`: of several layers of a model.
void print_host_cost(const std::string& what, const perf::Calls& calls) {
  for (int i = 0; i < 3; ++i) {
    for (const auto& call : calls) call();
  }
  const double together = perf::host_us(kCuda0, calls);
  cuda::set_batched_launches(false);
  const double apart = perf::host_us(kCuda0, calls);
  cuda::set_batched_launches(true);
  std::printf("host cost, %-33s %9.2f us a call, %9.2f launch by launch\n", what.c_str(), together,
              apart);
}

void print_host_costs(const Model& m, int64_t tokens) {
  const FusedMoEFwdOp layer({.top_k = m.top_k, .renormalize = true});
  const FusedMoEExpertsFwdOp experts;
  const FusedTopKFwdOp router({.top_k = m.top_k});
  perf::Calls router_calls, experts_calls, layer_calls;
  for (uint64_t i = 0; i < 4; ++i) {
    const Weights w(m);
    const Tensor hidden = random_on_gpu({tokens, m.hidden}, DType::kBF16, i, 1),
                 gating = random_on_gpu({tokens, m.experts}, DType::kF32, 8 + i, 1);
    const auto routed = router(gating);
    router_calls.emplace_back([&router, gating] { router(gating); });
    experts_calls.emplace_back([&experts, hidden, routed, w] {
      experts(hidden, routed.topk_weights, routed.topk_ids, w.gate_up, w.down);
    });
    layer_calls.emplace_back(
        [&layer, hidden, gating, w] { layer(hidden, gating, w.gate_up, w.down); });
  }
  print_host_cost(label("router", m, tokens), router_calls);
  print_host_cost(label("experts", m, tokens), experts_calls);
  print_host_cost(label("layer", m, tokens), layer_calls);
}

void print_routers() {
  print_router("top-k T=4096 E128 k8 softmax", {.top_k = 8, .renormalize = true}, 128, false);
  print_router("top-k T=4096 E384 k8 sigmoid with bias",
               {.top_k = 8, .scoring_func = ScoringFunc::kSigmoid, .renormalize = true}, 384, true);
}

void print_model(const Model& m, std::initializer_list<int64_t> prefill) {
  const Weights w(m);
  print_small_routes(m, w);
  for (const int64_t tokens : prefill) print_experts(m, w, tokens);
  for (const int64_t tokens : {int64_t{1}, int64_t{16}}) print_layer(m, w, tokens);
}

/// The parts that `words` name, all where there are none.
void print_parts(const std::vector<std::string>& words) {
  const auto wanted = [&](const char* part) {
    return words.empty() || std::find(words.begin(), words.end(), part) != words.end();
  };
  if (wanted("host")) {
    print_host_costs({"tiny", 8, 256, 256, 2}, 4);
    print_host_costs(kQwen3, 128);
    print_host_costs(kQwen3, 512);
  }
  if (wanted("router")) print_routers();
  if (wanted("permute")) {
    for (const int64_t tokens : {32, 128, 256, 512, 1024, 8192}) print_pre_permute(kQwen3, tokens);
    for (const int64_t tokens : {128, 256}) print_pre_permute(kDeepSeek, tokens);
    print_permutations();
  }
  if (wanted("shared")) print_shared_expert();
  if (wanted("qwen3")) print_model(kQwen3, {128, 1024, 8192});
  if (wanted("mixtral")) print_model(kMixtral, {128, 1024, 8192});
  if (wanted("deepseek")) print_model(kDeepSeek, {128, 512, 4096});
}

}  // namespace
}  // namespace tileops

int main(int argc, char** argv) {
  try {
    tileops::print_parts({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_moe_bench: %s\n", error.what());
    return 1;
  }
}
