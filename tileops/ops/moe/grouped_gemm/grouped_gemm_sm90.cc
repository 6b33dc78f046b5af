// SPDX-License-Identifier: Apache-2.0
// The grouped GEMM on sm_90a: what it refuses, which configuration serves, and the launch of
// grouped_gemm_sm90.cuh as grouped_gemm_sm90_params.h asks.
#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/ops/moe/activation_sm90_params.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_kernel.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_config.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_launch.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_tuning.h"
#include "tileops/perf/config_choice.h"

namespace tileops::grouped_gemm {
namespace {

constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;
constexpr int64_t kTmaAlignment = 16;

ElementType element_of(DType dtype) {
  return dtype == DType::kBF16  ? ElementType::kBF16
         : dtype == DType::kF16 ? ElementType::kF16
                                : ElementType::kF32;
}

/// What both implementations refuse: the kernels count rows and columns in 32 bits.
Refusal strided_refusal(const Call& call) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"rows", call.num_rows}, {"E", call.num_experts}, {"N", call.n}, {"K", call.k}};
  for (const auto& [name, size] : sizes) {
    if (size > kMaxSize) return fmt::format("needs {} <= {}, found {}", name, kMaxSize, size);
  }
  return std::nullopt;
}

Refusal alignment_refusal(const Call& call) {
  const std::pair<const char*, int64_t> operands[] = {
      {"a", call.a_alignment}, {"b", call.b_alignment}, {"out", call.out_alignment}};
  for (const auto& [name, alignment] : operands) {
    if (alignment < kTmaAlignment) {
      return fmt::format("needs the address and strides of {} aligned to {} bytes, found {}", name,
                         kTmaAlignment, alignment);
    }
  }
  return std::nullopt;
}

Refusal tma_refusal(const Call& call) {
  if (Refusal refusal = strided_refusal(call)) return refusal;
  const bool gated = !call.activation.is_none();
  const int64_t n_step = gated ? 16 : 8;
  if (call.k == 0 || call.k % 8 != 0) {
    return fmt::format("needs K in multiples of 8, found {}", call.k);
  }
  if (call.n % n_step != 0) {
    return fmt::format("needs rows of b an expert in multiples of {}, found {}", n_step, call.n);
  }
  if (!call.k_major) return "needs a and b with unit stride along K, found another";
  if (!call.out_n_major) return "needs out with unit stride along N, found another";
  if (!call.even_rows) return "needs rows of a and out at even distances, found slabs with gaps";
  if (call.expanded) return "needs a and b with strides above 0, found an expanded operand";
  return alignment_refusal(call);
}

Sm90Config config_of(const Call& call, bool fits_tma) {
  return choose_config({.num_rows = call.num_rows,
                        .num_experts = call.num_experts,
                        .max_m = call.layout.is_masked() ? call.layout.max_m() : 0,
                        .n = call.n,
                        .k = call.k,
                        .in = element_of(call.dtype),
                        .out = element_of(call.out_dtype),
                        .activation = activation_kind(call.activation),
                        .has_bias = call.has_bias,
                        .fits_tma = fits_tma});
}

Params params_of(const Sm90Config& config) {
  return {{"tile_features", int64_t{config.tile_features}},
          {"tile_rows", int64_t{config.tile_rows}},
          {"stages", int64_t{config.stages}},
          {"ctas", int64_t{config.ctas}},
          {"ping_pong", int64_t{config.ping_pong}}};
}

/// `chosen` with the tile of another that loads in the same way.
Sm90Config with_tile_of(const Sm90Config& tile, Sm90Config chosen) {
  chosen.tile_features = tile.tile_features;
  chosen.tile_rows = tile.tile_rows;
  chosen.stages = tile.stages;
  chosen.ctas = tile.ctas;
  chosen.ping_pong = tile.ping_pong;
  return chosen;
}

/// The first configuration of the same way of loading that has all that kernel_config forces.
Sm90Config forced_config(const Sm90Config& chosen, const Params& forced) {
  const auto is_as_forced = [&](const Params& params) {
    return std::all_of(forced.begin(), forced.end(), [&](const auto& wanted) {
      const Value* value = params.find(wanted.first);
      return value != nullptr && *value == wanted.second;
    });
  };
  std::string choices;
  for (const Sm90Config& reachable : kReachableConfigs) {
    if (reachable.load != chosen.load) continue;
    const Params params = params_of(reachable);
    if (is_as_forced(params)) return with_tile_of(reachable, chosen);
    choices += (choices.empty() ? "" : " or ") + to_string(params);
  }
  raise(ErrorKind::kValue, "kernel_config: the grouped GEMM of sm_90a has {} here, got {}", choices,
        to_string(forced));
}

/// Every program that selection can reach.
std::vector<cuda::ProgramSpec> programs() {
  using enum ElementType;
  constexpr ActivationKind kActivations[] = {
      ActivationKind::kNone, ActivationKind::kSiluAndMul, ActivationKind::kGeluAndMul,
      ActivationKind::kGeluTanhAndMul, ActivationKind::kSwigluOai};
  std::vector<cuda::ProgramSpec> specs;
  for (Sm90Config config : kReachableConfigs) {
    for (const ElementType in : {kBF16, kF16}) {
      for (const ElementType out : {in, kF32}) {
        for (const ActivationKind activation : kActivations) {
          for (const bool has_bias : {false, true}) {
            config.in = in;
            config.out = out;
            config.activation = activation;
            config.has_bias = has_bias;
            specs.push_back(program_of(config));
          }
        }
      }
    }
  }
  return specs;
}

[[maybe_unused]] const bool kRegistered = [] {
  cuda::register_programs("grouped_gemm sm90", programs);
  return true;
}();

/// Tuning fills slabs by half: a wide tile that is best then reads a fuller slab's weights twice.
bool is_rival(const Sm90Config& reachable, const Sm90Config& chosen, const Call& call) {
  const bool too_wide = call.layout.is_masked() && reachable.tile_features > chosen.tile_features;
  return reachable.load == chosen.load && !too_wide;
}

/// What is forced alone; else what choose_config says, then its rivals.
std::vector<Sm90Config> configs_of(const Call& call, bool fits_tma, const Params& forced) {
  const Sm90Config chosen = config_of(call, fits_tma);
  if (forced.size() > 0) return {forced_config(chosen, forced)};
  std::vector<Sm90Config> configs = {chosen};
  for (const Sm90Config& reachable : kReachableConfigs) {
    const Sm90Config config = with_tile_of(reachable, chosen);
    if (is_rival(reachable, chosen, call) && !(config == chosen)) configs.push_back(config);
  }
  return configs;
}

/// Of two GEMMs that follow one another the second begins early where both cut rows alike, which
/// is worth up to 4 %; but each is tuned for itself.
constexpr double kOtherRowsHandicap = 1.04;

perf::ConfigChoice choice_of(const Call& call, bool fits_tma, const BuildOptions& options) {
  perf::ConfigCandidates candidates{
      .implementation = fits_tma ? "grouped_gemm/sm90_weights_on_m" : "grouped_gemm/sm90_strided",
      .bucket = tuning_bucket(call),
      .is_forced = options.kernel_config.size() > 0};
  const std::vector<Sm90Config> configs = configs_of(call, fits_tma, options.kernel_config);
  for (const Sm90Config& config : configs) {
    candidates.configs.push_back(params_of(config));
    candidates.handicaps.push_back(config.tile_rows == configs[0].tile_rows ? 1
                                                                            : kOtherRowsHandicap);
  }
  return {std::move(candidates), options.device_name};
}

class Sm90Kernel final : public GroupedGemmKernel {
 public:
  Sm90Kernel(const Call& call, bool fits_tma, const BuildOptions& options)
      : call_(call), choice_(choice_of(call, fits_tma, options)) {
    for (const Sm90Config& config : configs_of(call, fits_tma, options.kernel_config)) {
      instances_.emplace_back(
          Sm90Launch{config, call.layout, call.activation, call.batch_invariant});
    }
  }

  Params config() const override { return choice_.config(); }
  ConfigOrigin config_origin() const override { return choice_.origin(); }
  bool tunable() const override { return choice_.tunable(); }
  void request_tune() override {
    choice_.tune(call_.device, kTuningRoutings.size(), [this]() -> perf::RunCandidate {
      return [this, tensors = make_tuning_tensors(call_)](size_t scenario, size_t i) {
        launch(instances_[i], tensors.args(scenario));
      };
    });
  }
  void list_programs(const ProgramSink& sink) const override {
    for (const Instance& instance : instances_) sink(instance.program.spec());
  }

  void run(const Args& args) const override { launch(instances_[choice_.index()], args); }

 private:
  struct Instance {
    explicit Instance(const Sm90Launch& l) : launch(l), program(program_of(l.config)) {}
    const Sm90Launch launch;
    mutable cuda::LazyProgram program;
  };

  static void launch(const Instance& instance, const Args& args) {
    if (args.out.num_elements() == 0 || args.b.shape()[0] == 0) return;
    instance.launch.run(args, instance.program);
  }

  const Call call_;  // one of those that share the kernel
  perf::ConfigChoice choice_;
  std::deque<Instance> instances_;  // of each candidate
};

/// Calls share a kernel where they share what a configuration is chosen by, and what an op's
/// parameters say.
EntryFor<GroupedGemm> entry_for(const Call& call, bool fits_tma) {
  return {Value::List{config_of(call, fits_tma).name(), tuning_bucket(call)},
          [call, fits_tma](const BuildOptions& options) {
            return std::make_shared<Sm90Kernel>(call, fits_tma, options);
          },
          [call, fits_tma](const BuildOptions& options) {
            return choice_of(call, fits_tma, options).in_use();
          }};
}

}  // namespace

Implementation<GroupedGemm> sm90_weights_on_m() {
  return {.info = {.key = "sm90_weights_on_m",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90a"},
                   .batches_launches = true},
          .refusal = tma_refusal,
          .entry_for = [](const Call& call) { return entry_for(call, true); }};
}

Implementation<GroupedGemm> sm90_strided() {
  return {.info = {.key = "sm90_strided",
                   .devices = {DeviceType::kCUDA},
                   .archs = {"sm_90a"},
                   .general = true,
                   .batches_launches = true},
          .refusal = strided_refusal,
          .entry_for = [](const Call& call) { return entry_for(call, false); }};
}

}  // namespace tileops::grouped_gemm
