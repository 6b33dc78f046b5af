// SPDX-License-Identifier: Apache-2.0
// The CPU's indexed experts: a segment a distinct expert, rows gathered by the GEMM itself.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cpu/grouped_gemm.h"
#include "tileops/ops/moe/cpu_activation.h"
#include "tileops/ops/moe/cpu_gemm_options.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_kernel.h"
#include "tileops/ops/moe/packed_lookup.h"
#include "tileops/ops/moe/route_order.h"
#include "tileops/ops/moe/tuning_inputs.h"
#include "tileops/ops/moe/weighted_reduce.h"
#include "tileops/perf/random_tensor.h"

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
  int64_t count() const { return static_cast<int64_t>(tokens.size()); }

  std::vector<cpu::RowSegment> segments;
  std::vector<int32_t> tokens;  // of each row
  Tensor row_of_route;          // [T·K], −1 for a dropped one
};

/// Calls that share a configuration: all but the token count exactly.
std::string tuning_bucket(const Call& call) {
  return fmt::format("{} scale {} {} E{} top_k{} H{} F{}{}{}, {}",
                     to_string(call.activation.to_value()), call.routed_scaling_factor,
                     dtype_short_name(call.dtype), call.num_experts, call.top_k, call.hidden,
                     call.inter, call.has_bias ? " bias" : "",
                     call.batch_invariant ? " batch_invariant" : "",
                     rows_bucket(call.num_tokens * call.top_k, call.num_experts));
}

/// Contiguous tensors of a call's sizes with fewer experts and as many rows of each.
struct TuningTensors {
  explicit TuningTensors(const Call& call) {
    const int64_t routes = call.num_tokens * call.top_k;
    const int64_t num_experts = std::max<int64_t>(call.num_experts, 1);
    const int64_t experts =
        cpu_tuning_experts(num_experts, 3 * call.inter * call.hidden, call.dtype,
                           (routes + num_experts - 1) / num_experts);
    const int64_t top_k = std::min(call.top_k, experts);
    const int64_t tokens =
        std::max<int64_t>(routes * experts / (num_experts * std::max<int64_t>(top_k, 1)), 1);
    const auto random = [&](const Shape& shape, uint64_t seed, float scale) {
      return perf::random_tensor(shape, call.dtype, kCpuDevice, seed, scale);
    };
    hidden = random({tokens, call.hidden}, 1, 1);
    w_gate_up = random({experts, 2 * call.inter, call.hidden}, 2, 0.05F);
    w_down = random({experts, call.hidden, call.inter}, 3, 0.05F);
    if (call.has_bias) {
      b_gate_up = random({experts, 2 * call.inter}, 4, 1);
      b_down = random({experts, call.hidden}, 5, 1);
    }
    weights = tuning_topk_weights(tokens, top_k);
    for (size_t i = 0; i < kTuningRoutings.size(); ++i) {
      ids[i] = tuning_topk_ids(tokens, top_k, experts, kTuningRoutings[i]);
    }
    out = Tensor::empty({tokens, call.hidden}, call.dtype);
  }
  Args args(size_t scenario) const {
    return {hidden, weights, ids[scenario], w_gate_up, w_down, b_gate_up, b_down, out};
  }
  Tensor hidden, weights, w_gate_up, w_down, b_gate_up, b_down, out;
  std::array<Tensor, kTuningRoutings.size()> ids;
};

class CpuSegmentsKernel final : public CpuGemmKernel<IndexedExpertMLPKernel> {
 public:
  CpuSegmentsKernel(const Call& call, const BuildOptions& build)
      : CpuGemmKernel(gemm_call(call), build),
        call_(call),
        activation_(cpu_activation(call.activation)),
        scale_(static_cast<float>(call.routed_scaling_factor)) {}

  static CpuGemmCall gemm_call(const Call& call) {
    return {"indexed_expert_mlp/cpu_segments", tuning_bucket(call), call.dtype,
            call.batch_invariant};
  }

  void request_tune() override {
    inner_loop_.tune(kTuningRoutings.size(), [this]() -> CpuGemmChoice::Compute {
      return
          [this, tensors = TuningTensors(call_)](size_t scenario, const cpu::GemmOptions& options) {
            compute(tensors.args(scenario), options);
          };
    });
  }

  void run(const Args& args) const override { compute(args, inner_loop_.options()); }

 private:
  void compute(const Args& args, const cpu::GemmOptions& options) const {
    const Rows rows(args.topk_ids, args.w_down.shape()[0]);
    const Tensor activated =
        Tensor::empty({rows.count(), args.w_down.shape()[2]}, args.hidden_states.dtype());
    gate_up(args, rows, activated, options);
    down_and_combine(args, rows, activated, options);
  }

  void gate_up(const Args& args, const Rows& rows, const Tensor& activated,
               const cpu::GemmOptions& options) const {
    const Tensor& x = args.hidden_states;
    const cpu::WeightsView weights = weights_view(args.w_gate_up);
    const auto packed = find_packed(weights, cpu::gate_layout(activation_.kind));
    cpu::grouped_gemm(
        {.segments = rows.segments,
         .a = {x.data(), x.dtype(), x.strides()[0], x.strides()[1], rows.tokens.data()},
         .b = weights,
         .packed_b = packed.get(),
         .bias = bias_view(args.b_gate_up),
         .activation = activation_,
         .out = {activated.data(), activated.dtype(), activated.shape()[1]}},
        options);
  }

  /// Some columns at a time, so that the experts' rows take little memory and stay in the caches.
  void down_and_combine(const Args& args, const Rows& rows, const Tensor& activated,
                        const cpu::GemmOptions& options) const {
    const int64_t hidden = args.w_down.shape()[1];
    const int64_t step = held_columns(rows.count(), hidden);
    const Tensor expert_rows = Tensor::empty({rows.count(), step}, activated.dtype());
    const cpu::WeightsView weights = weights_view(args.w_down);
    const auto packed = find_packed(weights, cpu::GateLayout::kNone);
    for (int64_t column = 0; column < hidden; column += step) {
      const int64_t num_columns = std::min(step, hidden - column);
      cpu::grouped_gemm({.segments = rows.segments,
                         .a = {activated.data(), activated.dtype(), activated.shape()[1]},
                         .b = weights,
                         .packed_b = packed.get(),
                         .bias = bias_view(args.b_down),
                         .out = {expert_rows.data(), expert_rows.dtype(), step},
                         .first_output = column,
                         .num_outputs = num_columns},
                        options);
      const Tensor sums = expert_rows.narrow(1, 0, num_columns);
      weighted_reduce(sums, row_matrix(MGroupedLayout::contiguous(), sums), args.topk_weights,
                      rows.row_of_route, scale_, args.out.narrow(1, column, num_columns));
    }
  }

  const Call call_;  // one of those that share the kernel
  const cpu::ActivationParams activation_;
  const float scale_;
};

}  // namespace

Implementation<IndexedExpertMLP> cpu_segments() {
  return {.info = {.key = "cpu_segments", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = cpu_gemm_entry<IndexedExpertMLP, CpuSegmentsKernel>};
}

}  // namespace tileops::indexed_expert_mlp
