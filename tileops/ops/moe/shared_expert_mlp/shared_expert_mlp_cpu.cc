// SPDX-License-Identifier: Apache-2.0
// The CPU's shared expert: the grouped GEMM's driver with one expert.
#include <cmath>
#include <numeric>
#include <vector>

#include "tileops/cpu/grouped_gemm.h"
#include "tileops/cpu/parallel.h"
#include "tileops/ops/moe/cpu_gemm_options.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_kernel.h"

namespace tileops::shared_expert_mlp {
namespace {

class CpuBlockedKernel final : public SharedExpertMLPKernel {
 public:
  CpuBlockedKernel(const Shard& shard, const cpu::GemmOptions& options)
      : shard_(shard), options_(options) {}

  Params config() const override { return cpu_gemm_config(options_); }

  void run(const Args& args) const override {
    const int64_t num_tokens = args.hidden_states.shape()[0], hidden = args.w_down.shape()[0];
    const int64_t size = args.w_down.shape()[1] / shard_.tp_size;
    const Tensor activated = Tensor::empty({num_tokens, size}, args.hidden_states.dtype());
    if (shard_.tp_size == 1)
      gate_up(args, activated);
    else
      gate_up_of_shard(args, activated);
    const cpu::RowSegment all{0, num_tokens, 0};
    const Strides& down = args.w_down.strides();
    cpu::grouped_gemm(
        {.segments = {&all, 1},
         .a = {activated.data(), activated.dtype(), size},
         .b = {element_at(args.w_down, shard_.tp_rank * size * down[1]), args.w_down.dtype(), 1,
               hidden, size, 0, down[0], down[1]},
         .out = {args.out.data(), args.out.dtype(), args.out.strides()[0], args.out.strides()[1]}},
        options_);
  }

 private:
  static cpu::RowsView rows_of(const Tensor& x) {
    return {x.data(), x.dtype(), x.strides()[0], x.strides()[1]};
  }

  void gate_up(const Args& args, const Tensor& activated) const {
    const cpu::RowSegment all{0, activated.shape()[0], 0};
    const Tensor& w = args.w_gate_up;
    cpu::grouped_gemm({.segments = {&all, 1},
                       .a = rows_of(args.hidden_states),
                       .b = {w.data(), w.dtype(), 1, w.shape()[0], w.shape()[1], 0, w.strides()[0],
                             w.strides()[1]},
                       .activation = {.kind = cpu::Activation::kSiluAndMul},
                       .out = {activated.data(), activated.dtype(), activated.shape()[1]}},
                      options_);
  }

  /// A shard's gate and up rows lie S rows apart: they are two experts that take the same tokens.
  void gate_up_of_shard(const Args& args, const Tensor& activated) const {
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
                      options_);
    cpu::parallel_for(num_tokens, 4, [&](int64_t begin, int64_t end) {
      const auto* gate = products.data_as<float>();
      const auto* up = gate + num_tokens * size;
      for (int64_t i = begin * size; i < end * size; ++i) {
        store_at(activated, i, static_cast<double>(gate[i] / (1.0f + std::exp(-gate[i])) * up[i]));
      }
    });
  }

  Shard shard_;
  cpu::GemmOptions options_;
};

}  // namespace

Implementation<SharedExpertMLP> cpu_blocked() {
  return {.info = {.key = "cpu_blocked", .devices = {DeviceType::kCPU}},
          .refusal = [](const Call&) { return Refusal(); },
          .entry_for = [](const Call& call) -> EntryFor<SharedExpertMLP> {
            return {
                Value::List{call.shard.tp_size, call.shard.tp_rank, call.batch_invariant},
                [shard = call.shard, invariant = call.batch_invariant](const BuildOptions& build) {
                  return std::make_shared<CpuBlockedKernel>(
                      shard, cpu_gemm_options(build.kernel_config, invariant));
                }};
          }};
}

}  // namespace tileops::shared_expert_mlp
