// SPDX-License-Identifier: Apache-2.0
// The CPU's shared expert: the grouped GEMM's driver with one expert.
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cpu/grouped_gemm.h"
#include "tileops/cpu/parallel.h"
#include "tileops/ops/moe/cpu_gemm_options.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/packed_lookup.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_kernel.h"
#include "tileops/ops/moe/tuning_inputs.h"
#include "tileops/perf/random_tensor.h"

namespace tileops::shared_expert_mlp {
namespace {

/// Calls that share a configuration: all but the token count exactly.
std::string tuning_bucket(const Call& call) {
  return fmt::format("{} H{} S{} rank {} of {}{}, {}", dtype_short_name(call.dtype), call.hidden,
                     call.inter, call.shard.tp_rank, call.shard.tp_size,
                     call.batch_invariant ? " batch_invariant" : "",
                     rows_bucket(call.num_tokens, 1));
}

class CpuBlockedKernel final : public CpuGemmKernel<SharedExpertMLPKernel> {
 public:
  CpuBlockedKernel(const Call& call, const BuildOptions& build)
      : CpuGemmKernel(gemm_call(call), build), call_(call), shard_(call.shard) {}

  static CpuGemmCall gemm_call(const Call& call) {
    return {"shared_expert_mlp/cpu_blocked", tuning_bucket(call), call.dtype, call.batch_invariant};
  }

  void request_tune() override {
    inner_loop_.tune(1, [this]() -> CpuGemmChoice::Compute {
      const auto random = [&](const Shape& shape, uint64_t seed, float scale) {
        return perf::random_tensor(shape, call_.dtype, kCpuDevice, seed, scale);
      };
      return [this, hidden = random({call_.num_tokens, call_.hidden}, 1, 1),
              w_gate_up = random({2 * call_.inter, call_.hidden}, 2, 0.05F),
              w_down = random({call_.hidden, call_.inter}, 3, 0.05F),
              out = Tensor::empty({call_.num_tokens, call_.hidden}, call_.dtype)](
                 size_t, const cpu::GemmOptions& options) {
        compute({hidden, w_gate_up, w_down, out}, options);
      };
    });
  }

  void run(const Args& args) const override { compute(args, inner_loop_.options()); }

 private:
  void compute(const Args& args, const cpu::GemmOptions& options) const {
    const int64_t num_tokens = args.hidden_states.shape()[0], hidden = args.w_down.shape()[0];
    const int64_t size = args.w_down.shape()[1] / shard_.tp_size;
    const Tensor activated = Tensor::empty({num_tokens, size}, args.hidden_states.dtype());
    if (shard_.tp_size == 1)
      gate_up(args, activated, options);
    else
      gate_up_of_shard(args, activated, options);
    const cpu::RowSegment all{0, num_tokens, 0};
    const Strides& strides = args.w_down.strides();
    const cpu::WeightsView down{element_at(args.w_down, shard_.tp_rank * size * strides[1]),
                                args.w_down.dtype(),
                                1,
                                hidden,
                                size,
                                0,
                                strides[0],
                                strides[1]};
    const auto packed = find_packed(down, cpu::GateLayout::kNone);
    cpu::grouped_gemm(
        {.segments = {&all, 1},
         .a = {activated.data(), activated.dtype(), size},
         .b = down,
         .packed_b = packed.get(),
         .out = {args.out.data(), args.out.dtype(), args.out.strides()[0], args.out.strides()[1]}},
        options);
  }

  static cpu::RowsView rows_of(const Tensor& x) {
    return {x.data(), x.dtype(), x.strides()[0], x.strides()[1]};
  }

  void gate_up(const Args& args, const Tensor& activated, const cpu::GemmOptions& options) const {
    const cpu::RowSegment all{0, activated.shape()[0], 0};
    const Tensor& w = args.w_gate_up;
    const cpu::WeightsView weights{w.data(),       w.dtype(),     1, w.shape()[0], w.shape()[1], 0,
                                   w.strides()[0], w.strides()[1]};
    const auto packed = find_packed(weights, cpu::GateLayout::kStacked);
    cpu::grouped_gemm({.segments = {&all, 1},
                       .a = rows_of(args.hidden_states),
                       .b = weights,
                       .packed_b = packed.get(),
                       .activation = {.kind = cpu::Activation::kSiluAndMul},
                       .out = {activated.data(), activated.dtype(), activated.shape()[1]}},
                      options);
  }

  /// A shard's gate and up rows lie S rows apart: they are two experts that take the same tokens.
  void gate_up_of_shard(const Args& args, const Tensor& activated,
                        const cpu::GemmOptions& options) const {
    const int64_t num_tokens = activated.shape()[0], size = activated.shape()[1];
    const Tensor& w = args.w_gate_up;
    const Tensor products = Tensor::empty({2 * num_tokens, size}, DType::kF32);
    std::vector<int32_t> tokens(static_cast<size_t>(2 * num_tokens));
    std::iota(tokens.begin(), tokens.begin() + num_tokens, 0);
    std::iota(tokens.begin() + num_tokens, tokens.end(), 0);
    const cpu::RowSegment halves[] = {{0, num_tokens, 0}, {num_tokens, num_tokens, 1}};
    cpu::RowsView rows = rows_of(args.hidden_states);
    rows.index = tokens.data();
    cpu::grouped_gemm({.segments = halves,
                       .a = rows,
                       .b = {element_at(w, shard_.tp_rank * size * w.strides()[0]), w.dtype(), 2,
                             size, w.shape()[1], size * shard_.tp_size * w.strides()[0],
                             w.strides()[0], w.strides()[1]},
                       .out = {products.data(), DType::kF32, size}},
                      options);
    cpu::parallel_for(num_tokens, 4, [&](int64_t begin, int64_t end) {
      const auto* gate = products.data_as<float>();
      const auto* up = gate + num_tokens * size;
      for (int64_t i = begin * size; i < end * size; ++i) {
        store_at(activated, i, static_cast<double>(gate[i] / (1.0f + std::exp(-gate[i])) * up[i]));
      }
    });
  }

  const Call call_;  // one of those that share the kernel
  const Shard shard_;
};

}  // namespace

Implementation<SharedExpertMLP> cpu_blocked() {
  return {.info = {.key = "cpu_blocked", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = cpu_gemm_entry<SharedExpertMLP, CpuBlockedKernel>};
}

}  // namespace tileops::shared_expert_mlp
