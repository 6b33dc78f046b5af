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

void requires_of_a_million_rows(benchmark::State& state) {
  SumValue per_row = layout();
  per_row.fields[1].second = "per_row";
  const Signature signature(entry("MoEGroupedGemmFwdOp"), {{"layout", per_row}});
  const Tensor metadata = Tensor::empty({1'000'000}, DType::kI32);
  for (int64_t i = 0; i < metadata.num_elements(); ++i) {
    metadata.data_as<int32_t>()[i] = static_cast<int32_t>(i / 125'000);
  }
  const Tensor inputs[] = {Tensor::empty({1'000'000, 1}, DType::kBF16),
                           Tensor::empty({8, 1, 1}, DType::kBF16), metadata, Tensor()};
  CallFacts facts;
  signature.check({inputs, {}}, facts);
  for (auto _ : state) signature.check_contents({inputs, {}}, facts);
}
BENCHMARK(requires_of_a_million_rows)->Unit(benchmark::kMillisecond);

void construct(benchmark::State& state) {
  const auto entry = spec::entry("MoEGroupedGemmFwdOp");
  for (auto _ : state) benchmark::DoNotOptimize(Signature(entry, {{"layout", layout()}}));
}
BENCHMARK(construct);

}  // namespace
}  // namespace tileops::spec
