// SPDX-License-Identifier: Apache-2.0
// The CPU's grouped GEMM: the driver of tileops/cpu over the rows that the metadata describes.
#include <vector>

#include "tileops/cpu/grouped_gemm.h"
#include "tileops/ops/moe/cpu_activation.h"
#include "tileops/ops/moe/cpu_gemm_options.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_kernel.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_tuning.h"
#include "tileops/ops/moe/packed_lookup.h"

namespace tileops::grouped_gemm {
namespace {

class CpuBlockedKernel final : public CpuGemmKernel<GroupedGemmKernel> {
 public:
  CpuBlockedKernel(const Call& call, const BuildOptions& build)
      : CpuGemmKernel(gemm_call(call), build),
        call_(call),
        layout_(call.layout),
        activation_(cpu_activation(call.activation)) {}

  static CpuGemmCall gemm_call(const Call& call) {
    return {"grouped_gemm/cpu_blocked", tuning_bucket(call), call.dtype, call.batch_invariant};
  }

  void request_tune() override {
    inner_loop_.tune(kTuningRoutings.size(), [this]() -> CpuGemmChoice::Compute {
      return [this, tensors = make_tuning_tensors(cpu_tuning_call(call_))](
                 size_t scenario, const cpu::GemmOptions& options) {
        compute(tensors.args(scenario), options);
      };
    });
  }

  void run(const Args& args) const override { compute(args, inner_loop_.options()); }

 private:
  void compute(const Args& args, const cpu::GemmOptions& options) const {
    const RowMatrix a = row_matrix(layout_, args.a);
    const std::vector<ExpertRows> rows =
        expert_rows(layout_, args.layout_metadata, args.b.shape()[0], a.num_rows);
    if (a.is_flat() && row_matrix(layout_, args.out).is_flat()) {
      run_rows(args, rows, 0, options);
      return;
    }
    for (const ExpertRows& one : rows) {
      run_rows(args, {{one.expert, one.row_begin % layout_.max_m(), one.num_rows}},
               one.row_begin / layout_.max_m(), options);
    }
  }

  void run_rows(const Args& args, const std::vector<ExpertRows>& rows, int64_t slab,
                const cpu::GemmOptions& options) const {
    const RowMatrix a = row_matrix(layout_, args.a), out = row_matrix(layout_, args.out);
    std::vector<cpu::RowSegment> segments;
    for (const ExpertRows& r : rows) segments.push_back({r.row_begin, r.num_rows, r.expert});
    const auto at_slab = [slab](const Tensor& tensor, const RowMatrix& m) {
      return tensor.data_as<std::byte>() + slab * m.slab_stride * dtype_bytes(tensor.dtype());
    };
    cpu::GroupedGemm problem{
        .segments = segments,
        .a = {at_slab(args.a, a), args.a.dtype(), a.row_stride, a.column_stride},
        .b = {args.b.data(), args.b.dtype(), args.b.shape()[0], args.b.shape()[1],
              args.b.shape()[2], args.b.strides()[0], args.b.strides()[1], args.b.strides()[2]},
        .activation = activation_,
        .out = {at_slab(args.out, out), args.out.dtype(), out.row_stride, out.column_stride}};
    if (args.bias.defined()) {
      problem.bias = {args.bias.data(), args.bias.dtype(), args.bias.strides()[0],
                      args.bias.strides()[1]};
    }
    const auto packed = find_packed(problem.b, cpu::gate_layout(activation_.kind));
    problem.packed_b = packed.get();
    cpu::grouped_gemm(problem, options);
  }

  const Call call_;  // one of those that share the kernel
  const MGroupedLayout layout_;
  const cpu::ActivationParams activation_;
};

}  // namespace

Implementation<GroupedGemm> cpu_blocked() {
  return {.info = {.key = "cpu_blocked", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = cpu_gemm_entry<GroupedGemm, CpuBlockedKernel>};
}

}  // namespace tileops::grouped_gemm
