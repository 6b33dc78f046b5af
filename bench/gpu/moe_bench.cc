// SPDX-License-Identifier: Apache-2.0
// Router, permutations, experts and the whole layer through the public ops on a GPU: the median of
// single calls after a flush of L2, and of back-to-back calls with several inputs in a CUDA graph;
// then the host's part of an eager call.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tileops/core/error.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/event.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"

namespace tileops {
namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Copies `block` to the GPU as often as fills the tensor.
template <class T>
void fill(const Tensor& tensor, const std::vector<T>& block) {
  const auto num_block = static_cast<int64_t>(block.size());
  for (int64_t at = 0; at < tensor.num_elements(); at += num_block) {
    const int64_t count = std::min(num_block, tensor.num_elements() - at);
    cuda::copy_to_device(tensor.data_as<T>() + at, block.data(),
                         static_cast<size_t>(count) * sizeof(T), kCuda0);
  }
}

/// Values in ±scale; a block of 4 Mi elements fills the tensor, as often as it takes.
Tensor random_on_gpu(const Shape& shape, DType dtype, uint64_t seed, float scale) {
  const Tensor tensor = Tensor::empty(shape, dtype, kCuda0);
  const auto num_block = static_cast<size_t>(std::min<int64_t>(tensor.num_elements(), 1 << 22));
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<float> any(-scale, scale);
  std::vector<float> values(num_block);
  for (float& value : values) value = any(engine);
  if (dtype == DType::kF32) {
    fill(tensor, values);
  } else {
    std::vector<uint16_t> bits(num_block);
    std::transform(values.begin(), values.end(), bits.begin(), f32_to_bf16);
    fill(tensor, bits);
  }
  return tensor;
}

template <class Work>
double timed_us(Stream stream, const Work& work) {
  cuda::Event begin(kCuda0), end(kCuda0);
  begin.record(stream);
  work();
  end.record(stream);
  end.synchronize();
  return cuda::elapsed_us(begin, end);
}

/// `calls`: the same work on different inputs.
void print_times(const char* what, const std::vector<std::function<void()>>& calls) {
  cuda::synchronize(current_stream(kCuda0));
  const cuda::OwnedStream stream(kCuda0);
  const StreamGuard guard(stream);
  const cuda::L2Flush flush(kCuda0);
  for (const auto& call : calls) call();
  const cuda::Graph single_graph = cuda::Graph::capture(stream, calls[0]);
  const cuda::Graph graph = cuda::Graph::capture(stream, [&] {
    for (const auto& call : calls) call();
  });
  std::vector<double> single, back_to_back;
  for (int i = 0; i < 20; ++i) {
    flush.run(stream);
    single.push_back(timed_us(stream, [&] { single_graph.replay(stream); }));
  }
  for (int i = 0; i < 20; ++i) {
    const double all = timed_us(stream, [&] { graph.replay(stream); });
    back_to_back.push_back(all / static_cast<double>(calls.size()));
  }
  std::printf("%-44s %9.2f us single, %9.2f us back to back\n", what, median(single),
              median(back_to_back));
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

/// Median over batches that are small enough for the launch queue.
template <class Call>
void print_host_cost(const char* what, const Call& call) {
  constexpr int kBatch = 50;
  std::vector<double> costs;
  for (int turn = 0; turn < 40; ++turn) {
    const double begin = now_us();
    for (int i = 0; i < kBatch; ++i) call();
    costs.push_back((now_us() - begin) / kBatch);
    cuda::synchronize(current_stream(kCuda0));
  }
  std::printf("host cost, %-33s %9.2f us a call\n", what, median(costs));
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
