// SPDX-License-Identifier: Apache-2.0
// The grouped GEMM through the public op on a GPU: the first call, the host's part of an eager
// call, and rows of the performance table.
//
//   gpu_grouped_gemm_bench first
// The first calls of a process: with a fresh TILEOPS_CACHE_DIR they compile, with one that was used
// before they read from disk. (NVRTC keeps a cache of its own: CUDA_CACHE_DISABLE=1.)
//
//   gpu_grouped_gemm_bench
// Host cost; then GEMMs and expert MLPs: the median of single calls after a flush of L2, and of
// back-to-back calls with several inputs in a CUDA graph.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "tileops/core/error.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/program.h"
#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_params.h"
#include "tileops/perf/random_tensor.h"
#include "tileops/perf/timer.h"

namespace tileops {
namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

Tensor random_on_gpu(const Shape& shape, uint64_t seed, double scale) {
  return perf::random_tensor(shape, DType::kBF16, kCuda0, seed, static_cast<float>(scale));
}

/// End rows of the experts when every token takes top_k distinct ones.
Tensor routed_ends(int64_t tokens, int64_t top_k, int64_t experts, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<int32_t> ends(static_cast<size_t>(experts)), ids(static_cast<size_t>(experts));
  std::iota(ids.begin(), ids.end(), 0);
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t i = 0; i < top_k; ++i) {
      const auto other = i + static_cast<int64_t>(engine() % static_cast<uint64_t>(experts - i));
      std::swap(ids[static_cast<size_t>(i)], ids[static_cast<size_t>(other)]);
      ++ends[static_cast<size_t>(ids[static_cast<size_t>(i)])];
    }
  }
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  const Tensor tensor = Tensor::empty({experts}, DType::kI32, kCuda0);
  cuda::copy_to_device(tensor.data(), ends.data(), ends.size() * sizeof(int32_t), kCuda0);
  return tensor;
}

void print_first_calls() {
  const Tensor b = random_on_gpu({8, 512, 256}, 1, 0.1);
  const auto timed = [&](const char* what, const MoEGroupedGemmFwdOp& op, int64_t tokens) {
    const Tensor a = random_on_gpu({tokens * 2, 256}, 2, 1);
    const Tensor ends = routed_ends(tokens, 2, 8, 3);
    const double begin = now_us();
    op(a, b, ends);
    const double called = now_us();
    cuda::synchronize(current_stream(kCuda0));
    std::printf("first call, %-32s %9.2f ms (and %.2f ms until done)\n", what,
                (called - begin) * 1e-3, (now_us() - called) * 1e-3);
  };
  const auto layout = MGroupedLayout::contiguous();
  const MoEGroupedGemmFwdOp plain(layout), gated(layout, GatedActivation::silu_and_mul),
      again(layout);
  timed("the process's first program", plain, 16);
  timed("another configuration (silu)", gated, 16);
  timed("another op, same configuration", again, 16);
  timed("another token count", plain, 17);
  timed("the same once more", plain, 17);
}

void print_host_cost(const char* what, const std::function<void()>& call) {
  std::printf("host cost, %-33s %9.2f us a call\n", what, perf::host_us(kCuda0, {call}));
}

/// A launch of a kernel that returns at once: what the driver takes.
void print_launch_cost() {
  const Stream stream = current_stream(kCuda0);
  const std::vector<cuda::ProgramSpec> specs = cuda::registered_programs();
  const auto spec = std::find_if(specs.begin(), specs.end(), [](const cuda::ProgramSpec& any) {
    return any.name.starts_with("grouped_gemm");
  });
  const cuda::Function& function = cuda::kernel_cache().get(*spec, stream).functions()[1];
  const grouped_gemm::PerRowSegmentsParams params{};
  const auto launch_with = [&](cuda::LaunchOrder order) {
    cuda::launch(function, {.grid = {1}, .cta = {256}, .order = order}, stream, params);
  };
  print_host_cost("an empty launch by itself",
                  [&] { launch_with(cuda::LaunchOrder::kAfterPrevious); });
  print_host_cost("an empty launch that overlaps",
                  [&] { launch_with(cuda::LaunchOrder::kOverlapPrevious); });
}

void print_host_costs() {
  print_launch_cost();
  const auto layout = MGroupedLayout::contiguous();
  const Tensor a = random_on_gpu({8, 256}, 1, 1), w_gate_up = random_on_gpu({8, 512, 256}, 2, 0.1),
               w_down = random_on_gpu({8, 256, 256}, 3, 0.1), ends = routed_ends(4, 2, 8, 4),
               hidden = Tensor::empty({8, 256}, DType::kBF16, kCuda0),
               out = Tensor::empty({8, 256}, DType::kBF16, kCuda0);
  const MoEGroupedGemmFwdOp gate_up(layout, GatedActivation::silu_and_mul), down(layout);
  const MoEExpertMLPFwdOp mlp(layout);
  print_host_cost("leaf into a given output",
                  [&] { gate_up(a, w_gate_up, ends, {.out = hidden}); });
  print_host_cost("leaf that allocates its output", [&] { gate_up(a, w_gate_up, ends); });
  print_host_cost("two leaves by hand", [&] {
    gate_up(a, w_gate_up, ends, {.out = hidden});
    down(hidden, w_down, ends, {.out = out});
  });
  print_host_cost("expert MLP (composite of the two)",
                  [&] { mlp(a, w_gate_up, w_down, ends, {.out = out}); });
}

struct Inputs {
  Tensor a, ends, out;
};

/// Both GEMMs of a layer's experts, with rows that are sorted already, in a CUDA graph.
void print_mlp(const char* name, int64_t experts, int64_t hidden, int64_t inter, int64_t tokens,
               double seen_ms) {
  constexpr int kInputs = 8;
  const Tensor w_gate_up = random_on_gpu({experts, 2 * inter, hidden}, 1, 0.05);
  const Tensor w_down = random_on_gpu({experts, hidden, inter}, 2, 0.05);
  const MoEExpertMLPFwdOp mlp(MGroupedLayout::contiguous());
  std::vector<Inputs> inputs;
  for (uint64_t i = 0; i < kInputs; ++i) {
    inputs.push_back({random_on_gpu({tokens * 8, hidden}, 10 + i, 1),
                      routed_ends(tokens, 8, experts, 20 + i),
                      Tensor::empty({tokens * 8, hidden}, DType::kBF16, kCuda0)});
  }
  perf::Calls calls;
  for (const Inputs& x : inputs) {
    calls.emplace_back([&] { mlp(x.a, w_gate_up, w_down, x.ends, {.out = x.out}); });
  }
  std::printf("%-26s %7.4f ms back to back; the kernels alone %.4f ms\n", name,
              perf::time_calls(kCuda0, calls).back_to_back * 1e-3, seen_ms);
}

struct Row {
  const char* name;
  int64_t experts, n, k, tokens;
  double seen_ms;  // by the kernel alone, bench/notes/hopper_gemm.md
};

void print_gemm(const Row& row, const Tensor& b) {
  const MoEGroupedGemmFwdOp op(MGroupedLayout::contiguous());
  const int64_t num_rows = row.tokens * 8;
  std::vector<Inputs> inputs;
  for (uint64_t i = 0; i < 2; ++i) {
    inputs.push_back({random_on_gpu({num_rows, row.k}, 10 + i, 1),
                      routed_ends(row.tokens, 8, row.experts, 20 + i),
                      Tensor::empty({num_rows, row.n}, DType::kBF16, kCuda0)});
  }
  perf::Calls calls;
  for (const Inputs& x : inputs) calls.emplace_back([&] { op(x.a, b, x.ends, {.out = x.out}); });
  const perf::CallTimes times = perf::time_calls(kCuda0, calls);
  std::printf("%-26s %7.3f ms single, %7.3f ms back to back; the kernel alone %.3f ms; by %s\n",
              row.name, times.single * 1e-3, times.back_to_back * 1e-3, row.seen_ms,
              op.last_call()->kernels()[0].entry->implementation.c_str());
}

void print_gemms() {
  print_mlp("Qwen3-30B experts, T=1", 128, 2048, 768, 1, 0.0316);
  print_mlp("Qwen3-30B experts, T=16", 128, 2048, 768, 16, 0.188);
  const Tensor b = random_on_gpu({256, 4096, 7168}, 5, 0.02);
  print_gemm({"E256 K7168 N4096 P=4096", 256, 4096, 7168, 512, 3.433}, b);
  print_gemm({"E256 K7168 N4096 P=32768", 256, 4096, 7168, 4096, 3.94}, b);
}

}  // namespace
}  // namespace tileops

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string_view(argv[1]) == "first") {
      tileops::print_first_calls();
    } else {
      tileops::print_host_costs();
      tileops::print_gemms();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_grouped_gemm_bench: %s\n", error.what());
    return 1;
  }
}
