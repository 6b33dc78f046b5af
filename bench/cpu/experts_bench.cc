// SPDX-License-Identifier: Apache-2.0
// Expert MLPs (gate_up with silu, then down) at the level of the CPU drivers, bf16, beside the
// machine's ceilings. Tokens, routing and layers rotate, so that experts come from memory. After
// each call as many other experts are only read: what neighbours of a virtual machine take of its
// memory's rate, they take of both. floor and share are of that reading's median rate.
//
//   cpu_experts_bench [model=qwen3-30b|mixtral] [tokens=1,4,16,128,512] [weights=packed|unpacked]
//                     [inner=auto|fma|bf16_dot|amx] [seconds=1]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tileops/cpu/grouped_gemm.h"
#include "tileops/cpu/parallel.h"
#include "tileops/perf/cpu_ceilings.h"

namespace tileops::bench {
namespace {

using namespace tileops::cpu;  // NOLINT: file-local

struct Model {
  std::string name;
  int64_t experts, hidden, inter, top_k;
  int layers;  // so many that a layer has left the caches when its turn comes again
};

const Model kModels[] = {{"qwen3-30b", 128, 2048, 768, 8, 2}, {"mixtral", 8, 4096, 14336, 2, 1}};

double now_ms() {
  using Ms = std::chrono::duration<double, std::milli>;
  return Ms(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using Halves = std::vector<uint16_t>;

/// Uniform in ±scale · [1, 2), which has the size of a model's weights and costs little to make.
void fill(uint16_t* data, int64_t count, uint64_t seed, int exponent) {
  parallel_for(count, 1 << 20, [&](int64_t begin, int64_t end) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(begin) + 1;
    for (int64_t i = begin; i < end; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto bits = static_cast<uint32_t>(state >> 40);
      data[i] = static_cast<uint16_t>((bits & 0x807f) | ((127 + exponent) << 7));
    }
  });
}

struct Layer {
  std::unique_ptr<uint16_t[]> gate_up, down;
  WeightsView gate_up_view, down_view;
  std::unique_ptr<PackedWeights> packed_gate_up, packed_down;
};

Layer make_layer(const Model& m, bool packed, uint64_t seed) {
  const auto make = [&](int64_t n, int64_t k, uint64_t s, std::unique_ptr<uint16_t[]>& data) {
    data.reset(new uint16_t[static_cast<size_t>(m.experts * n * k)]);
    fill(data.get(), m.experts * n * k, s, -6);
    return WeightsView{.data = data.get(),
                       .num_experts = m.experts,
                       .n = n,
                       .k = k,
                       .expert_stride = n * k,
                       .n_stride = k};
  };
  Layer layer;
  layer.gate_up_view = make(2 * m.inter, m.hidden, seed, layer.gate_up);
  layer.down_view = make(m.hidden, m.inter, seed + 1, layer.down);
  if (packed) {
    layer.packed_gate_up =
        std::make_unique<PackedWeights>(layer.gate_up_view, GateLayout::kStacked);
    layer.gate_up.reset();
    layer.packed_down = std::make_unique<PackedWeights>(layer.down_view, GateLayout::kNone);
    layer.down.reset();
  }
  return layer;
}

/// Seconds that the threads take to read the weights of some experts, as the drivers lay them.
double read_seconds(const Layer& layer, const std::vector<RowSegment>& segments) {
  constexpr int64_t kPieceBytes = 256 << 10;
  std::vector<std::span<const std::byte>> pieces;
  const auto add = [&](const WeightsView& view, const PackedWeights* packed, int32_t expert) {
    const int64_t bytes = view.n * view.k * 2;
    const std::byte* data = packed != nullptr ? packed->panel(expert, 0)
                                              : static_cast<const std::byte*>(view.data) +
                                                    expert * view.expert_stride * 2;
    for (int64_t at = 0; at < bytes; at += kPieceBytes) {
      pieces.emplace_back(data + at, static_cast<size_t>(std::min(kPieceBytes, bytes - at)));
    }
  };
  for (const RowSegment& s : segments)
    add(layer.gate_up_view, layer.packed_gate_up.get(), s.expert);
  for (const RowSegment& s : segments) add(layer.down_view, layer.packed_down.get(), s.expert);
  const double start = now_ms();
  parallel_tasks(static_cast<int64_t>(pieces.size()), 0,
                 [&](int64_t i, int) { perf::read_memory(pieces[static_cast<size_t>(i)]); });
  return (now_ms() - start) * 1e-3;
}

/// Routes sorted by expert; one token walks through a permutation, so that no expert comes twice
/// soon.
struct Routing {
  std::vector<RowSegment> segments;
  std::vector<int32_t> token;  // of each row
};

Routing route(const Model& m, int64_t tokens, std::mt19937& random, int64_t turn) {
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(m.experts));
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    if (tokens > 1) std::shuffle(order.begin(), order.end(), random);
    for (int64_t j = 0; j < m.top_k; ++j) {
      const auto pick = static_cast<size_t>((tokens > 1 ? j : turn * m.top_k + j) % m.experts);
      rows[order[pick]].push_back(static_cast<int32_t>(t));
    }
  }
  Routing r;
  for (size_t e = 0; e < rows.size(); ++e) {
    if (rows[e].empty()) continue;
    r.segments.push_back({.row_begin = static_cast<int64_t>(r.token.size()),
                          .num_rows = static_cast<int64_t>(rows[e].size()),
                          .expert = static_cast<int32_t>(e)});
    r.token.insert(r.token.end(), rows[e].begin(), rows[e].end());
  }
  return r;
}

struct Run {
  double median_ms = 0, min_ms = 0, floor_ms = 0, read_gbps = 0, gbps = 0, gflops = 0;
  std::string kernels;
};

Run measure(const Model& m, std::vector<Layer>& layers, int64_t tokens, InnerLoop inner,
            double seconds, const perf::CpuCeilings& ceilings) {
  const int64_t rows = tokens * m.top_k;
  Halves hidden(static_cast<size_t>(tokens * m.hidden));
  Halves middle(static_cast<size_t>(rows * m.inter)), out(static_cast<size_t>(rows * m.hidden));
  std::mt19937 random(11);
  const GemmOptions options{.inner_loop = inner};
  std::vector<double> times, read_rates, bytes;
  Run result;
  double ms_total = 0;
  const int64_t half_way = m.experts / m.top_k / 2;  // of the token that walks
  for (int64_t turn = 0; turn < 4 || (ms_total < seconds * 1e3 && turn < 400); ++turn) {
    const Layer& layer = layers[static_cast<size_t>(turn) % layers.size()];
    const int64_t round = turn / static_cast<int64_t>(layers.size());
    const Routing routing = route(m, tokens, random, round);
    fill(hidden.data(), tokens * m.hidden, static_cast<uint64_t>(turn), 0);
    const GroupedGemm gate_up{
        .segments = routing.segments,
        .a = {.data = hidden.data(), .row_stride = m.hidden, .index = routing.token.data()},
        .b = layer.gate_up_view,
        .packed_b = layer.packed_gate_up.get(),
        .activation = {.kind = Activation::kSiluAndMul},
        .out = {.data = middle.data(), .row_stride = m.inter}};
    const GroupedGemm down{.segments = routing.segments,
                           .a = {.data = middle.data(), .row_stride = m.inter},
                           .b = layer.down_view,
                           .packed_b = layer.packed_down.get(),
                           .out = {.data = out.data(), .row_stride = m.hidden}};
    const double start = now_ms();
    grouped_gemm(gate_up, options);
    grouped_gemm(down, options);
    const double ms = now_ms() - start;
    const Routing other = route(m, tokens, random, round + half_way);
    const double read_s = read_seconds(layer, other.segments);
    if (turn == 0) {
      result.kernels = describe(gate_up, options);
      continue;
    }
    const double bytes_per_expert = 6.0 * static_cast<double>(m.hidden * m.inter);
    times.push_back(ms);
    bytes.push_back(bytes_per_expert * static_cast<double>(routing.segments.size()));
    read_rates.push_back(bytes_per_expert * static_cast<double>(other.segments.size()) / read_s *
                         1e-9);
    ms_total += ms;
  }
  std::sort(times.begin(), times.end());
  std::sort(read_rates.begin(), read_rates.end());
  const double flops = 6.0 * static_cast<double>(rows * m.hidden * m.inter);
  const double rate =
      std::max({ceilings.fma_gflops, ceilings.bf16_dot_gflops, ceilings.amx_gflops});
  const double mean_bytes =
      std::accumulate(bytes.begin(), bytes.end(), 0.0) / static_cast<double>(bytes.size());
  result.median_ms = times[times.size() / 2];
  result.min_ms = times[0];
  result.read_gbps = read_rates[read_rates.size() / 2];
  result.floor_ms = std::max(mean_bytes / result.read_gbps, flops / rate) * 1e-6;
  result.gbps = mean_bytes / result.median_ms * 1e-6;
  result.gflops = flops / result.median_ms * 1e-6;
  return result;
}

std::vector<int64_t> parse_list(const std::string& text) {
  std::vector<int64_t> values;
  for (size_t at = 0; at < text.size(); at = std::min(text.find(',', at), text.size() - 1) + 1) {
    values.push_back(std::stoll(text.substr(at)));
  }
  return values;
}

int main_impl(int argc, char** argv) {
  std::map<std::string, std::string> args = {{"model", ""},
                                             {"tokens", "1,4,16,128,512"},
                                             {"weights", "packed"},
                                             {"inner", "auto"},
                                             {"seconds", "1"}};
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t equals = arg.find('=');
    if (equals == std::string::npos || !args.contains(arg.substr(0, equals))) {
      std::fprintf(stderr, "unknown argument %s; see the head of experts_bench.cc\n", argv[i]);
      return 2;
    }
    args[arg.substr(0, equals)] = arg.substr(equals + 1);
  }
  const std::map<std::string, InnerLoop> loops = {{"auto", InnerLoop::kAuto},
                                                  {"fma", InnerLoop::kFma},
                                                  {"bf16_dot", InnerLoop::kBf16Dot},
                                                  {"amx", InnerLoop::kAmx}};
  const perf::CpuCeilings c = perf::measure_cpu_ceilings();
  std::printf("threads %d  isa %s  read %.1f GB/s  fma %.0f  bf16_dot %.0f  amx %.0f GFLOP/s\n",
              num_threads(), std::string(name_of(active_isa())).c_str(), c.read_gbps, c.fma_gflops,
              c.bf16_dot_gflops, c.amx_gflops);
  std::printf("%-10s %6s %10s %9s %9s %6s %8s %8s %9s  %s\n", "model", "tokens", "median ms",
              "min ms", "floor ms", "share", "read", "GB/s", "GFLOP/s", "kernels");
  for (const Model& m : kModels) {
    if (!args["model"].empty() && args["model"] != m.name) continue;
    std::vector<Layer> layers;
    for (int i = 0; i < m.layers; ++i) {
      layers.push_back(
          make_layer(m, args["weights"] == "packed", static_cast<uint64_t>(2 * i + 1)));
    }
    for (const int64_t tokens : parse_list(args["tokens"])) {
      const Run r =
          measure(m, layers, tokens, loops.at(args["inner"]), std::stod(args["seconds"]), c);
      std::printf("%-10s %6ld %10.3f %9.3f %9.3f %5.1f%% %8.1f %8.1f %9.1f  %s\n", m.name.c_str(),
                  static_cast<long>(tokens), r.median_ms, r.min_ms, r.floor_ms,
                  100 * r.floor_ms / r.median_ms, r.read_gbps, r.gbps, r.gflops, r.kernels.c_str());
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tileops::bench

int main(int argc, char** argv) { return tileops::bench::main_impl(argc, argv); }
