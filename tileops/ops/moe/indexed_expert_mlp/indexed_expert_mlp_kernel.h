// SPDX-License-Identifier: Apache-2.0
// The indexed experts' kernel interface: what a call is, what a kernel gets.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/dispatch/call_fields.h"
#include "tileops/dispatch/implementation.h"
#include "tileops/ops/moe/activation.h"

namespace tileops::indexed_expert_mlp {

/// What selection may depend on. Sizes in elements; alignments in bytes, 1 to 16.
struct Call {
  GatedActivation activation;
  double routed_scaling_factor = 1.0;
  bool batch_invariant = false;
  DType dtype = DType::kBF16;
  bool has_bias = false;
  Device device;
  int64_t num_tokens = 0;
  int64_t top_k = 0;
  int64_t num_experts = 0;
  int64_t hidden = 0;
  int64_t inter = 0;
  bool k_major = true;             // hidden_states, w_gate_up and w_down have unit inner stride
  bool out_contiguous = true;      // out has unit inner stride
  int64_t hidden_alignment = 16;   // of hidden_states' data and outer stride
  int64_t weights_alignment = 16;  // of the weights' data and outer strides
  auto fields() const {
    return call_fields(
        field("activation", activation), field("routed_scaling_factor", routed_scaling_factor),
        field("batch_invariant", batch_invariant), field("dtype", dtype),
        field("has_bias", has_bias), field("device", device), field("num_tokens", num_tokens),
        field("top_k", top_k), field("num_experts", num_experts), field("hidden", hidden),
        field("inter", inter), field("k_major", k_major), field("out_contiguous", out_contiguous),
        field("hidden_alignment", hidden_alignment), field("weights_alignment", weights_alignment));
  }
  bool operator==(const Call&) const = default;
  size_t hash() const;
  std::string to_string() const;
};

/// Tensors of one call, as the spec entry names them; the biases may be absent.
struct Args {
  const Tensor& hidden_states;
  const Tensor& topk_weights;
  const Tensor& topk_ids;
  const Tensor& w_gate_up;
  const Tensor& w_down;
  const Tensor& b_gate_up;
  const Tensor& b_down;
  const Tensor& out;
  std::array<Tensor, 8> tensors() const {
    return {hidden_states, topk_weights, topk_ids, w_gate_up, w_down, b_gate_up, b_down, out};
  }
};

/// The experts' MLP of every route and its weighted sum, as indexed_expert_mlp_op.h says.
class IndexedExpertMLPKernel : public Kernel {
 public:
  virtual void run(const Args& args) const = 0;
};

struct IndexedExpertMLP {
  static constexpr std::string_view kName = "indexed_expert_mlp";
  using Call = indexed_expert_mlp::Call;
  using Args = indexed_expert_mlp::Args;
  using Kernel = IndexedExpertMLPKernel;
};

/// What an instance fixes.
struct Settings {
  GatedActivation activation = GatedActivation::silu_and_mul;
  double routed_scaling_factor = 1.0;
  bool batch_invariant = false;
};

/// The facts of a call as selection sees them.
Call make_call(const Settings& settings, const Args& args);
/// The part of a call that a kernel is built for.
Settings settings_of(const Call& call);
Value identity_of(const Settings& settings);

Implementation<IndexedExpertMLP> reference();
Implementation<IndexedExpertMLP> cpu_segments();
Implementation<IndexedExpertMLP> sm90_stream();
Implementation<IndexedExpertMLP> sm90_rows();

/// Columns of the experts' rows that exist at a time: so many that the rows take 8 MiB, but no
/// fewer than 512, a multiple of 32. Fewer would pack the activated rows too often.
int64_t held_columns(int64_t num_rows, int64_t hidden);

}  // namespace tileops::indexed_expert_mlp
