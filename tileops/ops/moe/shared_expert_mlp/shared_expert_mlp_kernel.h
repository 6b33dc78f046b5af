// SPDX-License-Identifier: Apache-2.0
// The shared expert's kernel interface: what a call is, what a kernel gets.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/dispatch/call_fields.h"
#include "tileops/dispatch/implementation.h"

namespace tileops::shared_expert_mlp {

/// The part of the expert that a rank computes, of S hidden columns: [rank·S/size,
/// (rank+1)·S/size).
struct Shard {
  int64_t tp_size = 1;
  int64_t tp_rank = 0;
  bool operator==(const Shard&) const = default;
  size_t hash() const { return hash_of(tp_size, tp_rank); }
  Params to_params() const { return {{"tp_size", tp_size}, {"tp_rank", tp_rank}}; }
};

/// What selection may depend on. Sizes in elements; alignments in bytes, 1 to 16.
struct Call {
  Shard shard;
  bool batch_invariant = false;
  DType dtype = DType::kBF16;
  Device device;
  int64_t num_tokens = 0;
  int64_t hidden = 0;
  int64_t inter = 0;               // S, of all ranks
  bool k_major = true;             // hidden_states and weights have unit inner stride
  bool out_contiguous = true;      // out has unit inner stride
  bool expanded = false;           // elements of an input's outer dimension share memory
  int64_t hidden_alignment = 16;   // of hidden_states' data and outer stride
  int64_t weights_alignment = 16;  // of the weights' data and outer strides
  int64_t out_alignment = 16;      // of out's data and outer stride
  auto fields() const {
    return call_fields(
        field("shard", shard), field("batch_invariant", batch_invariant), field("dtype", dtype),
        field("device", device), field("num_tokens", num_tokens), field("hidden", hidden),
        field("inter", inter), field("k_major", k_major), field("out_contiguous", out_contiguous),
        field("expanded", expanded), field("hidden_alignment", hidden_alignment),
        field("weights_alignment", weights_alignment), field("out_alignment", out_alignment));
  }
  bool operator==(const Call&) const = default;
  size_t hash() const;
  std::string to_string() const;
};

/// Tensors of one call, as the spec entry names them.
struct Args {
  const Tensor& hidden_states;
  const Tensor& w_gate_up;
  const Tensor& w_down;
  const Tensor& out;
  std::array<Tensor, 4> tensors() const { return {hidden_states, w_gate_up, w_down, out}; }
};

/// The shard's gated MLP, as shared_expert_mlp_op.h says.
class SharedExpertMLPKernel : public Kernel {
 public:
  virtual void run(const Args& args) const = 0;
};

struct SharedExpertMLP {
  static constexpr std::string_view kName = "shared_expert_mlp";
  using Call = shared_expert_mlp::Call;
  using Args = shared_expert_mlp::Args;
  using Kernel = SharedExpertMLPKernel;
};

/// The facts of a call as selection sees them.
Call make_call(const Shard& shard, bool batch_invariant, const Args& args);

Implementation<SharedExpertMLP> reference();
Implementation<SharedExpertMLP> cpu_blocked();
Implementation<SharedExpertMLP> sm90_weights_on_m();
Implementation<SharedExpertMLP> sm90_strided();

}  // namespace tileops::shared_expert_mlp
