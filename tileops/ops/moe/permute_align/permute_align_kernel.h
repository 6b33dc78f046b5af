// SPDX-License-Identifier: Apache-2.0
// The kernel interface of the block-aligned route order: what a call is, what a kernel gets.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/dispatch/call_fields.h"
#include "tileops/dispatch/implementation.h"

namespace tileops::permute_align {

/// What selection may depend on.
struct Call {
  int64_t num_experts = 1;
  int64_t block_size = 64;
  Device device;
  int64_t num_tokens = 0;
  int64_t top_k = 0;
  auto fields() const {
    return call_fields(field("num_experts", num_experts), field("block_size", block_size),
                       field("device", device), field("num_tokens", num_tokens),
                       field("top_k", top_k));
  }
  bool operator==(const Call&) const = default;
  size_t hash() const;
  std::string to_string() const;
};

/// Tensors of one call, as the spec entry names them; outputs are contiguous.
struct Args {
  const Tensor& topk_ids;
  const Tensor& sorted_route_ids;
  const Tensor& block_expert_ids;
  const Tensor& num_padded_rows;
  std::array<Tensor, 4> tensors() const {
    return {topk_ids, sorted_route_ids, block_expert_ids, num_padded_rows};
  }
};

/// Orders routes by expert in whole blocks, as permute_align_op.h says.
class PermuteAlignKernel : public Kernel {
 public:
  virtual void run(const Args& args) const = 0;
};

struct PermuteAlign {
  static constexpr std::string_view kName = "permute_align";
  using Call = permute_align::Call;
  using Args = permute_align::Args;
  using Kernel = PermuteAlignKernel;
};

Implementation<PermuteAlign> reference();
Implementation<PermuteAlign> cpu_counting_sort();
Implementation<PermuteAlign> sm90_counting_sort();

}  // namespace tileops::permute_align
