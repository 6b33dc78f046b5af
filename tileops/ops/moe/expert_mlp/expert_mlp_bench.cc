// SPDX-License-Identifier: Apache-2.0
// Host cost of a composite of two stages, kernel time aside.
#include <benchmark/benchmark.h>

#include "tests/support/idle_grouped_gemm.h"
#include "tests/support/testing.h"
#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"

namespace tileops {
namespace {

void BM_CompositeCall(benchmark::State& state) {
  testing::register_idle_grouped_gemm();
  const MoEExpertMLPFwdOp op(MGroupedLayout::contiguous());
  const Tensor inputs[] = {testing::random_tensor({4, 64}, DType::kBF16, 1),
                           testing::random_tensor({8, 64, 64}, DType::kBF16, 2),
                           testing::random_tensor({8, 64, 32}, DType::kBF16, 3),
                           testing::int_tensor({8}, {1, 1, 2, 2, 3, 3, 4, 4}),
                           Tensor(),
                           Tensor()};
  const Tensor outs[] = {testing::poisoned({4, 64}, DType::kBF16)};
  for (auto _ : state) benchmark::DoNotOptimize(op.call({inputs, outs}));
}
BENCHMARK(BM_CompositeCall);

}  // namespace
}  // namespace tileops
