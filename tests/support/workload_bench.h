// SPDX-License-Identifier: Apache-2.0
// Benchmarks of an op on rows of its spec entry: time, and the rates that its roofline formulas
// give.
#pragma once

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "tileops/op/op.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"

namespace tileops::testing {

/// One workload row, by label, on inputs that rotate so that caches lie as they do in a model.
template <class OpT>
void bench_workload(benchmark::State& state, const std::string& label) {
  const auto entry = spec::entry(OpT::kName);
  const spec::WorkloadCase which = spec::workload_case(*entry, label);
  const std::vector<std::vector<Tensor>> inputs = {spec::make_inputs(entry, which, 1),
                                                   spec::make_inputs(entry, which, 2)};
  const auto op = OpT::from_params(which.params, {});
  size_t turn = 0;
  for (auto _ : state) benchmark::DoNotOptimize(op->call({inputs[turn++ % inputs.size()], {}}));
  const spec::Cost cost = op->eval_roofline();
  using benchmark::Counter;
  state.counters["bytes_per_second"] = Counter(cost.bytes, Counter::kIsIterationInvariantRate);
  state.counters["flop_per_second"] = Counter(cost.flops, Counter::kIsIterationInvariantRate);
}

template <class OpT>
bool register_workload_benches(std::initializer_list<const char*> labels) {
  for (const char* label : labels) {
    benchmark::RegisterBenchmark((std::string(OpT::kName) + "/" + label).c_str(),
                                 bench_workload<OpT>, std::string(label))
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}

}  // namespace tileops::testing
