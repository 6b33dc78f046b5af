// SPDX-License-Identifier: Apache-2.0
// A grouped GEMM that computes nothing: what remains of a call is what the library itself costs.
#pragma once

#include "tileops/dispatch/kernel_registry.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"

namespace tileops::testing {

class IdleKernel final : public grouped_gemm::GroupedGemmKernel {
 public:
  void run(const grouped_gemm::Args&) const override {}
};

/// From now on new instances of this process are served by IdleKernel on the CPU.
inline void register_idle_grouped_gemm() {
  static const bool once = [] {
    register_kernel_type<grouped_gemm::GroupedGemm>(
        MoEGroupedGemmFwdOp::op_class().name(),
        {.info = {.key = "idle", .devices = {DeviceType::kCPU}, .preferred_over = {"cpu_blocked"}},
         .refusal = [](const grouped_gemm::Call&) { return Refusal(); },
         .entry_for = [](const grouped_gemm::Call&) -> EntryFor<grouped_gemm::GroupedGemm> {
           return {Value(), [](const BuildOptions&) { return std::make_shared<IdleKernel>(); }};
         }});
    return true;
  }();
  (void)once;
}

}  // namespace tileops::testing
