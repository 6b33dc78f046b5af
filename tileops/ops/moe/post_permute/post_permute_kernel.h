// SPDX-License-Identifier: Apache-2.0
// The post-permutation's kernel interface: what a call is, what a kernel gets.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/dispatch/call_fields.h"
#include "tileops/dispatch/implementation.h"
#include "tileops/ops/moe/layout.h"
#include "tileops/ops/moe/routing_epilogue.h"

namespace tileops::post_permute {

/// What selection may depend on.
struct Call {
  MGroupedLayout layout = MGroupedLayout::contiguous();
  double routed_scaling_factor = 1.0;
  DType dtype = DType::kBF16;
  DType out_dtype = DType::kBF16;
  Device device;
  int64_t num_rows = 0;  // P, or E * max_m
  int64_t num_tokens = 0;
  int64_t hidden = 0;
  int64_t top_k = 0;
  bool rows_contiguous = true;  // expert_output has unit stride along H
  bool out_contiguous = true;   // so has out
  auto fields() const {
    return call_fields(
        field("layout", layout), field("routed_scaling_factor", routed_scaling_factor),
        field("dtype", dtype), field("out_dtype", out_dtype), field("device", device),
        field("num_rows", num_rows), field("num_tokens", num_tokens), field("hidden", hidden),
        field("top_k", top_k), field("rows_contiguous", rows_contiguous),
        field("out_contiguous", out_contiguous));
  }
  bool operator==(const Call&) const = default;
  size_t hash() const;
  std::string to_string() const;
};

/// Tensors of one call, as the spec entry names them.
struct Args {
  const Tensor& expert_output;
  const Tensor& topk_weights;
  const Tensor& inverse_indices;
  const Tensor& out;
  std::array<Tensor, 4> tensors() const {
    return {expert_output, topk_weights, inverse_indices, out};
  }
};

/// Combines the experts' rows of each token, as post_permute_op.h says.
class PostPermuteKernel : public Kernel {
 public:
  virtual void run(const Args& args) const = 0;
};

struct PostPermute {
  static constexpr std::string_view kName = "post_permute";
  using Call = post_permute::Call;
  using Args = post_permute::Args;
  using Kernel = PostPermuteKernel;
};

/// The facts of a call as selection sees them.
Call make_call(const MGroupedLayout& layout, double routed_scaling_factor, const Args& args);

Implementation<PostPermute> reference();
Implementation<PostPermute> cpu_weighted_sum();
Implementation<PostPermute> sm90_weighted_sum();

}  // namespace tileops::post_permute
