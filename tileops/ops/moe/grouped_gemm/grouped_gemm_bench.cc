// SPDX-License-Identifier: Apache-2.0
// Host cost of one leaf call (the spec's check, the cache hit, the record), kernel time aside.
#include <benchmark/benchmark.h>

#include "tests/support/idle_grouped_gemm.h"
#include "tests/support/testing.h"

namespace tileops {
namespace {

struct Tensors {
  Tensor a = testing::random_tensor({4, 64}, DType::kBF16, 1);
  Tensor b = testing::random_tensor({8, 32, 64}, DType::kBF16, 2);
  Tensor metadata = testing::int_tensor({8}, {1, 1, 2, 2, 3, 3, 4, 4});
  Tensor out = testing::poisoned({4, 32}, DType::kBF16);
};

void BM_LeafCall(benchmark::State& state) {
  testing::register_idle_grouped_gemm();
  const Tensors t;
  const MoEGroupedGemmFwdOp op(MGroupedLayout::contiguous());
  const Tensor inputs[] = {t.a, t.b, t.metadata, Tensor()};
  const Tensor outs[] = {t.out};
  for (auto _ : state) benchmark::DoNotOptimize(op.call({inputs, outs}));
}
BENCHMARK(BM_LeafCall);

void BM_SignatureCheck(benchmark::State& state) {
  const Tensors t;
  const MoEGroupedGemmFwdOp op(MGroupedLayout::contiguous());
  const Tensor inputs[] = {t.a, t.b, t.metadata, Tensor()};
  const Tensor outs[] = {t.out};
  spec::CallFacts facts;
  for (auto _ : state) {
    op.signature().check({inputs, outs}, facts);
    benchmark::DoNotOptimize(facts);
  }
}
BENCHMARK(BM_SignatureCheck);

void BM_KernelLookup(benchmark::State& state) {
  const Tensors t;
  const Tensor absent;
  const grouped_gemm::Args args{t.a, t.b, t.metadata, absent, t.out};
  KernelCache<grouped_gemm::GroupedGemm> cache(kernel_table("MoEGroupedGemmFwdOp"), "", {});
  bool fresh = false;
  cache.select(make_call(MGroupedLayout::contiguous(), {}, false, args), kCpuDevice, fresh);
  for (auto _ : state) {
    benchmark::DoNotOptimize(cache.find(make_call(MGroupedLayout::contiguous(), {}, false, args)));
  }
}
BENCHMARK(BM_KernelLookup);

void BM_Record(benchmark::State& state) {
  const MoEGroupedGemmFwdOp op(MGroupedLayout::contiguous());
  const auto signature =
      std::make_shared<const spec::Signature>(op.signature().shared_entry(), op.params());
  for (auto _ : state)
    benchmark::DoNotOptimize(std::make_shared<CallRecord>(op.op_class(), signature));
}
BENCHMARK(BM_Record);

}  // namespace
}  // namespace tileops
