// SPDX-License-Identifier: Apache-2.0
// The pre-permutation's kernel interface: what a call is, what a kernel gets.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/dispatch/call_fields.h"
#include "tileops/dispatch/implementation.h"
#include "tileops/ops/moe/layout.h"

namespace tileops::pre_permute {

/// What selection may depend on.
struct Call {
  MGroupedLayout layout = MGroupedLayout::contiguous();
  int64_t num_experts = 1;
  DType dtype = DType::kBF16;
  Device device;
  int64_t num_tokens = 0;
  int64_t hidden = 0;
  int64_t top_k = 0;
  bool rows_contiguous = true;  // hidden_states has unit stride along H
  auto fields() const {
    return call_fields(field("layout", layout), field("num_experts", num_experts),
                       field("dtype", dtype), field("device", device),
                       field("num_tokens", num_tokens), field("hidden", hidden),
                       field("top_k", top_k), field("rows_contiguous", rows_contiguous));
  }
  bool operator==(const Call&) const = default;
  size_t hash() const;
  std::string to_string() const;
};

/// Tensors of one call, as the spec entry names them; outputs are contiguous.
struct Args {
  const Tensor& hidden_states;
  const Tensor& local_expert_ids;
  const Tensor& expert_input;
  const Tensor& layout_metadata;
  const Tensor& inverse_indices;
  std::array<Tensor, 5> tensors() const {
    return {hidden_states, local_expert_ids, expert_input, layout_metadata, inverse_indices};
  }
};

/// Gathers each expert's rows, as pre_permute_op.h says.
class PrePermuteKernel : public Kernel {
 public:
  virtual void run(const Args& args) const = 0;
};

struct PrePermute {
  static constexpr std::string_view kName = "pre_permute";
  using Call = pre_permute::Call;
  using Args = pre_permute::Args;
  using Kernel = PrePermuteKernel;
};

/// The facts of a call as selection sees them.
Call make_call(const MGroupedLayout& layout, int64_t num_experts, const Args& args);

Implementation<PrePermute> reference();
Implementation<PrePermute> cpu_gather();
Implementation<PrePermute> sm90_counting_sort();

}  // namespace tileops::pre_permute
