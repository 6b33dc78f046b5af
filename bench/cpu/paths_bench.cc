// SPDX-License-Identifier: Apache-2.0
// FusedMoEExpertsFwdOp by its two paths, indexed and permuted, in turn; bf16, silu. Routing and
// layers rotate, so that experts come from memory.
//
//   cpu_paths_bench [model=qwen3-30b|mixtral] [tokens=1,16,64,128,512,2048]
//                   [weights=packed|unpacked|transposed] [turns=8]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tileops/cpu/parallel.h"
#include "tileops/moe.h"

namespace tileops::bench {
namespace {

struct Model {
  std::string name;
  int64_t experts, hidden, inter, top_k;
  int layers;  // so many that a layer has left the caches when its turn comes again
};

const Model kModels[] = {{"qwen3-30b", 128, 2048, 768, 8, 2}, {"mixtral", 8, 4096, 14336, 2, 1}};

/// Uniform in ±2^exponent · [1, 2).
Tensor random_bf16(const Shape& shape, uint64_t seed, int exponent) {
  Tensor tensor = Tensor::empty(shape, DType::kBF16);
  auto* data = tensor.data_as<uint16_t>();
  cpu::parallel_for(tensor.num_elements(), 1 << 20, [&](int64_t begin, int64_t end) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(begin) + 1;
    for (int64_t i = begin; i < end; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto bits = static_cast<uint32_t>(state >> 40);
      data[i] = static_cast<uint16_t>((bits & 0x807f) | ((127 + exponent) << 7));
    }
  });
  return tensor;
}

struct Layer {
  Layer(const Model& m, const std::string& weights, uint64_t seed)
      : gate_up(make(m.experts, 2 * m.inter, m.hidden, weights, seed)),
        down(make(m.experts, m.hidden, m.inter, weights, seed + 1)) {
    if (weights == "packed") packed.emplace(gate_up, down);
  }
  static Tensor make(int64_t e, int64_t n, int64_t k, const std::string& weights, uint64_t seed) {
    if (weights == "transposed") return random_bf16({e, k, n}, seed, -6).transpose(1, 2);
    return random_bf16({e, n, k}, seed, -6);
  }
  Tensor gate_up, down;
  std::optional<PackedExperts> packed;
};

Tensor random_ids(const Model& m, int64_t tokens, std::mt19937& random) {
  const Tensor ids = Tensor::empty({tokens, m.top_k}, DType::kI32);
  std::vector<int32_t> order(static_cast<size_t>(m.experts));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    std::shuffle(order.begin(), order.end(), random);
    std::copy_n(order.begin(), m.top_k, ids.data_as<int32_t>() + t * m.top_k);
  }
  return ids;
}

double ms_of(const FusedMoEExpertsFwdOp& op, const Tensor& x, const Tensor& weights,
             const Tensor& ids, const Layer& layer) {
  const auto start = std::chrono::steady_clock::now();
  op(x, weights, ids, layer.gate_up, layer.down);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare_paths(const Model& m, const std::vector<Layer>& layers, int64_t tokens, int turns) {
  const FusedMoEExpertsFwdOp indexed({.small_route = SmallRoute::kAlways});
  const FusedMoEExpertsFwdOp permuted({.small_route = SmallRoute::kNever});
  std::mt19937 random(11);
  Tensor weights = Tensor::empty({tokens, m.top_k}, DType::kF32);
  std::fill_n(weights.data_as<float>(), weights.num_elements(), 0.125f);
  std::vector<double> indexed_ms, permuted_ms;
  for (int turn = -1; turn < turns; ++turn) {
    const Tensor x = random_bf16({tokens, m.hidden}, static_cast<uint64_t>(turn + 2), 0);
    const auto run = [&](const FusedMoEExpertsFwdOp& op, std::vector<double>& times, size_t at) {
      const Tensor ids = random_ids(m, tokens, random);
      const double ms = ms_of(op, x, weights, ids, layers[at % layers.size()]);
      if (turn >= 0) times.push_back(ms);
    };
    const auto at = static_cast<size_t>(turn + 1);
    run(indexed, indexed_ms, at);
    run(permuted, permuted_ms, at + 1);
    run(permuted, permuted_ms, at);
    run(indexed, indexed_ms, at + 1);
  }
  const auto least = [](const std::vector<double>& x) {
    return *std::min_element(x.begin(), x.end());
  };
  std::printf("%-10s %6ld %6ld %10.3f (%.3f) %10.3f (%.3f) %7.3f\n", m.name.c_str(),
              static_cast<long>(tokens), static_cast<long>(tokens * m.top_k), median(indexed_ms),
              least(indexed_ms), median(permuted_ms), least(permuted_ms),
              median(permuted_ms) / median(indexed_ms));
  std::fflush(stdout);
}

int main_impl(int argc, char** argv) {
  std::map<std::string, std::string> args = {{"model", "qwen3-30b"},
                                             {"tokens", "1,16,64,128,512,2048"},
                                             {"weights", "packed"},
                                             {"turns", "8"}};
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t equals = arg.find('=');
    if (equals == std::string::npos || !args.contains(arg.substr(0, equals))) {
      std::fprintf(stderr, "unknown argument %s; see the head of paths_bench.cc\n", argv[i]);
      return 2;
    }
    args[arg.substr(0, equals)] = arg.substr(equals + 1);
  }
  for (const Model& m : kModels) {
    if (args["model"] != m.name) continue;
    std::vector<Layer> layers;
    for (int i = 0; i < m.layers; ++i)
      layers.emplace_back(m, args["weights"], static_cast<uint64_t>(2 * i + 1));
    std::printf("%s weights, %d threads\n%-10s %6s %6s %18s %18s %7s\n", args["weights"].c_str(),
                cpu::num_threads(), "model", "tokens", "routes", "indexed ms (least)",
                "permuted (least)", "ratio");
    std::string list = args["tokens"] + ",";
    for (size_t at = 0; at < list.size(); at = list.find(',', at) + 1)
      compare_paths(m, layers, std::stoll(list.substr(at)), std::stoi(args["turns"]));
  }
  return 0;
}

}  // namespace
}  // namespace tileops::bench

int main(int argc, char** argv) { return tileops::bench::main_impl(argc, argv); }
