// SPDX-License-Identifier: Apache-2.0
// Host time of a signature check: part of the figure of contract D9.
#include "tileops/spec/signature.h"

#include <benchmark/benchmark.h>

#include "tileops/spec/registry.h"

namespace tileops::spec {
namespace {

SumValue layout() {
  return {"MGroupedLayout",
          "contiguous",
          {{"packing", "tight"}, {"metadata_kind", "physical_psum"}, {"alignment", 1}}};
}

void check(benchmark::State& state, bool with_bias, bool with_out) {
  const Signature signature(entry("MoEGroupedGemmFwdOp"),
                            {{"layout", layout()}, {"activation", "silu_and_mul"}});
  const auto tensor = [](const Shape& shape, DType dtype) { return Tensor::empty(shape, dtype); };
  const Tensor inputs[] = {tensor({64, 128}, DType::kBF16), tensor({8, 512, 128}, DType::kBF16),
                           tensor({8}, DType::kI32),
                           with_bias ? tensor({8, 512}, DType::kBF16) : Tensor()};
  const Tensor outs[] = {with_out ? tensor({64, 256}, DType::kBF16) : Tensor()};
  CallFacts facts;
  for (auto _ : state) {
    signature.check({inputs, outs}, facts);
    benchmark::DoNotOptimize(facts);
  }
}
BENCHMARK_CAPTURE(check, three_tensors, false, false);
BENCHMARK_CAPTURE(check, four_tensors, true, false);
BENCHMARK_CAPTURE(check, four_tensors_and_out, true, true);

void construct(benchmark::State& state) {
  const auto entry = spec::entry("MoEGroupedGemmFwdOp");
  for (auto _ : state) benchmark::DoNotOptimize(Signature(entry, {{"layout", layout()}}));
}
BENCHMARK(construct);

}  // namespace
}  // namespace tileops::spec
