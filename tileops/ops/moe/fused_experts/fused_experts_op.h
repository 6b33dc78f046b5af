// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "tileops/op/typed_op.h"
#include "tileops/ops/moe/activation.h"
#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_op.h"
#include "tileops/ops/moe/post_permute/post_permute_op.h"
#include "tileops/ops/moe/pre_permute/pre_permute_op.h"

namespace tileops {

/// When the indexed path serves: on the CPU and, where few routes make it pay, on a GPU (by shapes,
/// strides and device alone); always; or never.
enum class SmallRoute : uint8_t { kAuto, kAlways, kNever };

/// What a FusedMoEExpertsFwdOp fixes.
struct ExpertsSettings {
  double routed_scaling_factor = 1.0;
  GatedActivation activation = GatedActivation::silu_and_mul;
  SmallRoute small_route = SmallRoute::kAuto;
  bool batch_invariant = false;
};

/// The routed experts of a layer: out[t] = scale · Σ_k topk_weights[t, k] · mlp(expert of (t,
/// k))(x_t). One instance serves any number of experts. Which path served is in the record: stages
/// pre_permute, expert_mlp and post_permute, or the stage indexed_small_route.
/// Shapes: hidden_states [T, H]; topk_weights [T, K] float32; topk_ids [T, K] int32; w_gate_up [E,
///         2F, H]; w_down [E, H, F]; b_gate_up [E, 2F], b_down [E, H], together or absent; output
///         [T, H]. dtype: float16 or bfloat16, one for all. Ids outside [0, E) are dropped;
///         duplicates each count.
/// Memory: on the CPU, its inputs included, at most 1.2 x (inputs + outputs + the larger one of
///         [T·K, H] and [T·K, F]) where that is well above 8 MiB and the threads' scratch, which is
///         about 450 bytes · max(H, F) each.
/// Bits:   equal from run to run; with batch_invariant a token's are those that it has alone.
/// Errors: kShape, kDType, kDevice, kValue (the spec's checks); those of the stages.
/// Source: fused_experts.yaml.
class FusedMoEExpertsFwdOp : public TypedOp<FusedMoEExpertsFwdOp> {
 public:
  static constexpr std::string_view kName = "FusedMoEExpertsFwdOp";
  using delegate_types = DelegateTypes<Stage<"pre_permute", MoEPrePermuteFwdOp>,
                                       Stage<"expert_mlp", MoEExpertMLPFwdOp>,
                                       Stage<"post_permute", MoEPostPermuteFwdOp>,
                                       Stage<"indexed_small_route", IndexedExpertMLPFwdOp>>;

  /// Bytes of workspace that hold the intermediates of a call, whichever path serves it. Without a
  /// workspace they lie in a block that the process keeps from call to call (CPU) or come from the
  /// allocator.
  static int64_t workspace_bytes(int64_t num_tokens, int64_t top_k, int64_t num_experts,
                                 int64_t hidden, int64_t inter);

  explicit FusedMoEExpertsFwdOp(const ExpertsSettings& settings = {}, OpOptions options = {});
  static std::shared_ptr<FusedMoEExpertsFwdOp> from_params(const Params& params,
                                                           const OpOptions& options);

  struct Optional {
    Tensor b_gate_up;
    Tensor b_down;
    Tensor output;
    Tensor workspace;  // execution argument: uint8 [workspace_bytes(…)] or more
  };
  Tensor operator()(const Tensor& hidden_states, const Tensor& topk_weights, const Tensor& topk_ids,
                    const Tensor& w_gate_up, const Tensor& w_down,
                    const Optional& optional = {}) const {
    return invoke(*this, hidden_states, topk_weights, topk_ids, w_gate_up, w_down, optional);
  }
  static Tensor invoke(const Op& op, const Tensor& hidden_states, const Tensor& topk_weights,
                       const Tensor& topk_ids, const Tensor& w_gate_up, const Tensor& w_down,
                       const Optional& optional = {});

 protected:
  Results forward(Call& call) const override;

 private:
  bool takes_indexed_path(Call& call) const;

  ExpertsSettings settings_;
  spec::CallExpr num_experts_;
  spec::CallExpr few_routes_on_gpu_;
  Held<MoEExpertMLPFwdOp> expert_mlp_;
  Held<MoEPostPermuteFwdOp> post_permute_;
  Held<IndexedExpertMLPFwdOp> indexed_small_route_;
};

}  // namespace tileops
