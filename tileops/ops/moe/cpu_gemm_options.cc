// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/cpu_gemm_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "tileops/core/check.h"

namespace tileops {
namespace {

struct Named {
  cpu::InnerLoop loop;
  std::string_view name;
};
constexpr std::array<Named, 4> kInnerLoops{{{cpu::InnerLoop::kAuto, "auto"},
                                            {cpu::InnerLoop::kFma, "fma"},
                                            {cpu::InnerLoop::kBf16Dot, "bf16_dot"},
                                            {cpu::InnerLoop::kAmx, "amx"}}};

}  // namespace

cpu::GemmOptions cpu_gemm_options(const Params& kernel_config, bool batch_invariant) {
  cpu::GemmOptions options{.batch_invariant = batch_invariant};
  for (const auto& [key, value] : kernel_config) {
    TILEOPS_CHECK(ErrorKind::kValue, key == "inner_loop",
                  "kernel_config: the CPU's GEMM kernels know inner_loop, not {}", key);
    const auto it = std::find_if(kInnerLoops.begin(), kInnerLoops.end(),
                                 [&](const Named& named) { return value == Value(named.name); });
    TILEOPS_CHECK(ErrorKind::kValue, it != kInnerLoops.end(),
                  "kernel_config: inner_loop is auto, fma, bf16_dot or amx, got {}",
                  to_string(value));
    options.inner_loop = it->loop;
  }
  return options;
}

namespace {

perf::ConfigCandidates candidates_of(const CpuGemmCall& call, const Params& forced) {
  perf::ConfigCandidates candidates{call.implementation, call.bucket};
  candidates.is_forced = forced.size() > 0;
  candidates.configs = {cpu_gemm_config(cpu_gemm_options(forced, call.batch_invariant))};
  if (candidates.is_forced || call.batch_invariant || call.dtype != DType::kBF16) return candidates;
  const cpu::IsaLevel level = cpu::active_isa();
  const bool has_amx = level >= cpu::IsaLevel::kAmx;
  const bool has_dot = level >= cpu::IsaLevel::kAvx512Bf16;
  const bool auto_is_dot = has_dot && !has_amx && cpu::bf16_dot_outruns_fma();
  if (has_amx || auto_is_dot) candidates.configs.push_back({{"inner_loop", "fma"}});
  if (has_dot && !auto_is_dot) candidates.configs.push_back({{"inner_loop", "bf16_dot"}});
  return candidates;
}

}  // namespace

CpuGemmChoice::CpuGemmChoice(const CpuGemmCall& call, const BuildOptions& build)
    : choice_(candidates_of(call, build.kernel_config), build.device_name) {
  for (const Params& config : candidates_of(call, build.kernel_config).configs) {
    options_.push_back(cpu_gemm_options(config, call.batch_invariant));
  }
}

Params cpu_gemm_config(const cpu::GemmOptions& options) {
  const auto it = std::find_if(kInnerLoops.begin(), kInnerLoops.end(), [&](const Named& named) {
    return named.loop == options.inner_loop;
  });
  return {{"inner_loop", it->name}};
}

}  // namespace tileops
