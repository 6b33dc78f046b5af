// SPDX-License-Identifier: Apache-2.0
// The CPU's grouped GEMM: the driver of tileops/cpu over the rows that the metadata describes.
#include <vector>

#include "tileops/cpu/grouped_gemm.h"
#include "tileops/ops/moe/cpu_activation.h"
#include "tileops/ops/moe/cpu_gemm_options.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_kernel.h"
#include "tileops/ops/moe/packed_lookup.h"

namespace tileops::grouped_gemm {
namespace {

class CpuBlockedKernel final : public GroupedGemmKernel {
 public:
  CpuBlockedKernel(MGroupedLayout layout, GatedActivation activation,
                   const cpu::GemmOptions& options)
      : layout_(layout), activation_(cpu_activation(activation)), options_(options) {}

  Params config() const override { return cpu_gemm_config(options_); }

  void run(const Args& args) const override {
    const RowMatrix a = row_matrix(layout_, args.a);
    const std::vector<ExpertRows> rows =
        expert_rows(layout_, args.layout_metadata, args.b.shape()[0], a.num_rows);
    if (a.is_flat() && row_matrix(layout_, args.out).is_flat()) {
      run_rows(args, rows, 0);
      return;
    }
    for (const ExpertRows& one : rows) {
      run_rows(args, {{one.expert, one.row_begin % layout_.max_m(), one.num_rows}},
               one.row_begin / layout_.max_m());
    }
  }

 private:
  void run_rows(const Args& args, const std::vector<ExpertRows>& rows, int64_t slab) const {
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
    cpu::grouped_gemm(problem, options_);
  }

  MGroupedLayout layout_;
  cpu::ActivationParams activation_;
  cpu::GemmOptions options_;
};

}  // namespace

Implementation<GroupedGemm> cpu_blocked() {
  return {.info = {.key = "cpu_blocked", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<GroupedGemm> {
            return {Value::List{call.layout.to_value(), call.activation.to_value(),
                                call.batch_invariant},
                    [layout = call.layout, activation = call.activation,
                     invariant = call.batch_invariant](const BuildOptions& build) {
                      return std::make_shared<CpuBlockedKernel>(
                          layout, activation, cpu_gemm_options(build.kernel_config, invariant));
                    }};
          }};
}

}  // namespace tileops::grouped_gemm
