// SPDX-License-Identifier: Apache-2.0
// The CPU's indexed experts: a segment a distinct expert, rows gathered by the GEMM itself.
#include <algorithm>
#include <vector>

#include "tileops/cpu/grouped_gemm.h"
#include "tileops/ops/moe/cpu_activation.h"
#include "tileops/ops/moe/cpu_gemm_options.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_kernel.h"
#include "tileops/ops/moe/packed_lookup.h"
#include "tileops/ops/moe/route_order.h"
#include "tileops/ops/moe/weighted_reduce.h"

namespace tileops::indexed_expert_mlp {
namespace {

cpu::WeightsView weights_view(const Tensor& w) {
  return {w.data(),     w.dtype(),      w.shape()[0],   w.shape()[1],
          w.shape()[2], w.strides()[0], w.strides()[1], w.strides()[2]};
}

cpu::BiasView bias_view(const Tensor& bias) {
  if (!bias.defined()) return {};
  return {bias.data(), bias.dtype(), bias.strides()[0], bias.strides()[1]};
}

/// The kept routes by expert, as the GEMM and the sum take them.
struct Rows {
  explicit Rows(const Tensor& topk_ids, int64_t num_experts)
      : row_of_route(Tensor::empty({topk_ids.num_elements()}, DType::kI32)) {
    const RouteOrder order = order_routes(topk_ids, num_experts);
    for (int64_t e = 0; e < num_experts; ++e) {
      if (order.count(e) == 0) continue;
      segments.push_back(
          {order.offsets[static_cast<size_t>(e)], order.count(e), static_cast<int32_t>(e)});
    }
    auto* rows = row_of_route.data_as<int32_t>();
    std::fill_n(rows, row_of_route.num_elements(), -1);
    for (size_t row = 0; row < order.routes.size(); ++row) {
      const int32_t route = order.routes[row];
      rows[route] = static_cast<int32_t>(row);
      tokens.push_back(static_cast<int32_t>(route / topk_ids.shape()[1]));
    }
  }
  std::vector<cpu::RowSegment> segments;
  std::vector<int32_t> tokens;  // of each row
  Tensor row_of_route;          // [T·K], −1 for a dropped one
};

class CpuSegmentsKernel final : public IndexedExpertMLPKernel {
 public:
  CpuSegmentsKernel(const Settings& settings, const Params& kernel_config)
      : activation_(cpu_activation(settings.activation)),
        scale_(static_cast<float>(settings.routed_scaling_factor)),
        options_(cpu_gemm_options(kernel_config, settings.batch_invariant)) {}

  Params config() const override { return cpu_gemm_config(options_); }

  void run(const Args& args) const override {
    const Rows rows(args.topk_ids, args.w_down.shape()[0]);
    const auto num_rows = static_cast<int64_t>(rows.tokens.size());
    const int64_t hidden = args.w_down.shape()[1], inter = args.w_down.shape()[2];
    const Tensor& x = args.hidden_states;
    const Tensor activated = Tensor::empty({num_rows, inter}, x.dtype());
    const Tensor expert_rows = Tensor::empty({num_rows, hidden}, DType::kF32);
    const cpu::WeightsView gate_up = weights_view(args.w_gate_up), down = weights_view(args.w_down);
    const auto packed_gate_up = find_packed(gate_up, cpu::gate_layout(activation_.kind));
    const auto packed_down = find_packed(down, cpu::GateLayout::kNone);
    cpu::grouped_gemm(
        {.segments = rows.segments,
         .a = {x.data(), x.dtype(), x.strides()[0], x.strides()[1], rows.tokens.data()},
         .b = gate_up,
         .packed_b = packed_gate_up.get(),
         .bias = bias_view(args.b_gate_up),
         .activation = activation_,
         .out = {activated.data(), activated.dtype(), inter}},
        options_);
    cpu::grouped_gemm({.segments = rows.segments,
                       .a = {activated.data(), activated.dtype(), inter},
                       .b = down,
                       .packed_b = packed_down.get(),
                       .bias = bias_view(args.b_down),
                       .out = {expert_rows.data(), DType::kF32, hidden}},
                      options_);
    weighted_reduce(expert_rows, row_matrix(MGroupedLayout::contiguous(), expert_rows),
                    args.topk_weights, rows.row_of_route, scale_, args.out);
  }

 private:
  cpu::ActivationParams activation_;
  float scale_;
  cpu::GemmOptions options_;
};

}  // namespace

Implementation<IndexedExpertMLP> cpu_segments() {
  return {.info = {.key = "cpu_segments", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<IndexedExpertMLP> {
            return {identity_of(settings_of(call)),
                    [settings = settings_of(call)](const BuildOptions& build) {
                      return std::make_shared<CpuSegmentsKernel>(settings, build.kernel_config);
                    }};
          }};
}

}  // namespace tileops::indexed_expert_mlp
