// SPDX-License-Identifier: Apache-2.0
// The tuning configuration that the CPU's GEMM kernels of the family share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tileops/core/value.h"
#include "tileops/cpu/grouped_gemm.h"
#include "tileops/dispatch/implementation.h"
#include "tileops/perf/config_choice.h"

namespace tileops {

/// Options from a forced configuration {inner_loop: auto | fma | bf16_dot | amx}; empty: auto.
/// Errors: kValue for another key or value.
cpu::GemmOptions cpu_gemm_options(const Params& kernel_config, bool batch_invariant);
/// The configuration in use, as cpu_gemm_options takes it.
Params cpu_gemm_config(const cpu::GemmOptions& options);

/// What decides which inner loops a kernel can choose from.
struct CpuGemmCall {
  std::string implementation;  // "grouped_gemm/cpu_blocked"
  std::string bucket;
  DType dtype = DType::kBF16;
  bool batch_invariant = false;  // one inner loop for every size: nothing to choose
};

/// The inner loop that a kernel uses: forced, from a table, tuned, or auto: AMX where the processor
/// has it, else the bf16 dot where it outruns f32 FMA, else FMA; the others are its rivals.
class CpuGemmChoice {
 public:
  /// Errors: cpu_gemm_options'.
  CpuGemmChoice(const CpuGemmCall& call, const BuildOptions& build);

  const cpu::GemmOptions& options() const { return options_[choice_.index()]; }
  const perf::ConfigChoice& choice() const { return choice_; }
  /// `prepare` makes the tensors and returns what computes a call of a scenario with some options.
  using Compute = std::function<void(size_t scenario, const cpu::GemmOptions&)>;
  void tune(size_t num_scenarios, const std::function<Compute()>& prepare) {
    choice_.tune(kCpuDevice, num_scenarios, [&]() -> perf::RunCandidate {
      return [this, compute = prepare()](size_t scenario, size_t i) {
        compute(scenario, options_[i]);
      };
    });
  }

 private:
  perf::ConfigChoice choice_;
  std::vector<cpu::GemmOptions> options_;  // of each candidate
};

/// What a kernel of the interface says of its configuration, where that is the inner loop alone.
template <class Interface>
class CpuGemmKernel : public Interface {
 public:
  Params config() const override { return inner_loop_.choice().config(); }
  ConfigOrigin config_origin() const override { return inner_loop_.choice().origin(); }
  bool tunable() const override { return inner_loop_.choice().tunable(); }

 protected:
  CpuGemmKernel(const CpuGemmCall& call, const BuildOptions& build) : inner_loop_(call, build) {}

  CpuGemmChoice inner_loop_;
};

/// The entry of a kernel class with a static gemm_call(call).
template <KernelInterface I, class GemmKernel>
EntryFor<I> cpu_gemm_entry(const typename I::Call& call) {
  const CpuGemmCall gemm = GemmKernel::gemm_call(call);
  return {
      Value(gemm.bucket),
      [call](const BuildOptions& build) { return std::make_shared<GemmKernel>(call, build); },
      [gemm](const BuildOptions& build) { return CpuGemmChoice(gemm, build).choice().in_use(); }};
}

}  // namespace tileops
