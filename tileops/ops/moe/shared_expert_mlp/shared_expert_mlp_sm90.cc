// SPDX-License-Identifier: Apache-2.0
// The shared expert on a GPU: the grouped GEMM's kernels with one expert that has all rows.
#include <memory>
#include <utility>

#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch_batch.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_launch.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_kernel.h"

namespace tileops::shared_expert_mlp {
namespace {

using grouped_gemm::Sm90Config;
using grouped_gemm::Sm90Launch;

constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;
constexpr int64_t kTmaAlignment = 16;
constexpr int64_t kStep = 8;  // sizes that TMA reads are multiples of it

/// The columns of a rank.
int64_t share_of(const Call& call) { return call.inter / call.shard.tp_size; }

Refusal strided_refusal(const Call& call) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"T", call.num_tokens}, {"H", call.hidden}, {"2 * S", 2 * call.inter}};
  for (const auto& [name, size] : sizes) {
    if (size > kMaxSize) return fmt::format("needs {} <= {}, found {}", name, kMaxSize, size);
  }
  return std::nullopt;
}

Refusal tma_refusal(const Call& call) {
  if (Refusal refusal = strided_refusal(call)) return refusal;
  const std::pair<const char*, int64_t> lengths[] = {{"H", call.hidden},
                                                     {"S / tp_size", share_of(call)}};
  for (const auto& [name, length] : lengths) {
    if (length == 0 || length % kStep != 0) {
      return fmt::format("needs {} in multiples of {}, found {}", name, kStep, length);
    }
  }
  if (!call.k_major) return "needs hidden_states and weights with unit inner stride, found another";
  if (!call.out_contiguous) return "needs out with unit inner stride, found another";
  if (call.expanded) return "needs inputs with strides above 0, found an expanded one";
  const std::pair<const char*, int64_t> operands[] = {{"hidden_states", call.hidden_alignment},
                                                      {"the weights", call.weights_alignment},
                                                      {"out", call.out_alignment}};
  for (const auto& [name, alignment] : operands) {
    if (alignment < kTmaAlignment) {
      return fmt::format("needs the address and strides of {} aligned to {} bytes, found {}", name,
                         kTmaAlignment, alignment);
    }
  }
  return std::nullopt;
}

struct Launches {
  Sm90Launch gate_up;
  Sm90Launch down;
};

Launches launches_of(const Call& call, bool fits_tma) {
  using grouped_gemm::ActivationKind;
  const auto element = call.dtype == DType::kBF16 ? grouped_gemm::ElementType::kBF16
                                                  : grouped_gemm::ElementType::kF16;
  const auto config = [&](int64_t n, int64_t k, ActivationKind activation) {
    return grouped_gemm::choose_config({.num_rows = call.num_tokens,
                                        .num_experts = 1,
                                        .n = n,
                                        .k = k,
                                        .in = element,
                                        .out = element,
                                        .activation = activation,
                                        .fits_tma = fits_tma});
  };
  const int64_t share = share_of(call);
  return {.gate_up = {.config = config(2 * share, call.hidden, ActivationKind::kSiluAndMul),
                      .activation = GatedActivation::silu_and_mul,
                      .batch_invariant = call.batch_invariant,
                      .up_distance = call.inter},
          .down = {.config = config(call.hidden, share, ActivationKind::kNone),
                   .batch_invariant = call.batch_invariant}};
}

class Sm90Kernel final : public SharedExpertMLPKernel {
 public:
  Sm90Kernel(const Shard& shard, const Launches& launches)
      : shard_(shard),
        launches_(launches),
        gate_up_(program_of(launches.gate_up.config)),
        down_(program_of(launches.down.config)) {}

  void list_programs(const ProgramSink& sink) const override {
    sink(gate_up_.spec());
    sink(down_.spec());
  }

  void run(const Args& args) const override {
    if (args.out.num_elements() == 0) return;
    const Tensor &x = args.hidden_states, &up = args.w_gate_up, &down = args.w_down;
    const int64_t hidden = down.shape()[0], share = down.shape()[1] / shard_.tp_size;
    const int64_t begin = shard_.tp_rank * share;
    const Tensor activated = Tensor::empty({x.shape()[0], share}, x.dtype(), x.device());
    const Tensor none;
    const Tensor down_share = down.as_strided(
        {1, hidden, share}, {0, down.strides()[0], down.strides()[1]}, begin * down.strides()[1]);
    cuda::LaunchScope scope(x.device());
    if (share > 0) {
      const Tensor gate_up =
          up.as_strided({1, 2 * share, x.shape()[1]}, {0, up.strides()[0], up.strides()[1]},
                        begin * up.strides()[0]);
      launches_.gate_up.run({x, gate_up, none, none, activated}, gate_up_);
    }
    launches_.down.run({activated, down_share, none, none, args.out}, down_);
    scope.submit();
  }

 private:
  const Shard shard_;
  const Launches launches_;
  mutable cuda::LazyProgram gate_up_;
  mutable cuda::LazyProgram down_;
};

EntryFor<SharedExpertMLP> entry_for(const Call& call, bool fits_tma) {
  const Launches launches = launches_of(call, fits_tma);
  return {Value::List{launches.gate_up.config.name(), launches.down.config.name(),
                      call.shard.tp_size, call.shard.tp_rank, call.batch_invariant, call.inter},
          [shard = call.shard, launches](const BuildOptions&) {
            return std::make_shared<Sm90Kernel>(shard, launches);
          }};
}

}  // namespace

Implementation<SharedExpertMLP> sm90_weights_on_m() {
  return {.info = {.key = "sm90_weights_on_m",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90a"},
                   .batches_launches = true},
          .refusal = tma_refusal,
          .entry_for = [](const Call& call) { return entry_for(call, true); }};
}

Implementation<SharedExpertMLP> sm90_strided() {
  return {.info = {.key = "sm90_strided",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90a"},
                   .general = true,
                   .batches_launches = true},
          .refusal = strided_refusal,
          .entry_for = [](const Call& call) { return entry_for(call, false); }};
}

}  // namespace tileops::shared_expert_mlp
