// SPDX-License-Identifier: Apache-2.0
// The post-permutation's kernel interface: what a call is, what a kernel gets.
#pragma once

#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
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
};

/// Combines the experts' rows of each token, as post_permute_op.h says.
class PostPermuteKernel : public Kernel {
 public:
  virtual void run(const Args& args) const = 0;
};

struct PostPermute {
  static constexpr std::string_view kName = "post_permute";
  using Call = post_permute::Call;
  using Kernel = PostPermuteKernel;
};

/// The facts of a call as selection sees them.
Call make_call(const MGroupedLayout& layout, double routed_scaling_factor, const Args& args);

Implementation<PostPermute> reference();
Implementation<PostPermute> cpu_weighted_sum();
Implementation<PostPermute> sm90_weighted_sum();

}  // namespace tileops::post_permute
