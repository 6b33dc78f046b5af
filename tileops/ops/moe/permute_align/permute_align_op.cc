// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/permute_align/permute_align_op.h"

#include <utility>

#include "tileops/core/check.h"
#include "tileops/ops/moe/op_params.h"

namespace tileops {
namespace permute_align {

size_t Call::hash() const { return hash_fields(*this); }

std::string Call::to_string() const {
  return fmt::format("E {}, block size {}, T {}, K {}", num_experts, block_size, num_tokens, top_k);
}

}  // namespace permute_align

MoEPermuteAlignFwdOp::MoEPermuteAlignFwdOp(int64_t num_experts, int64_t block_size,
                                           OpOptions options)
    : TypedOp({{"num_experts", num_experts}, {"block_size", block_size}}, std::move(options)),
      num_experts_(num_experts),
      block_size_(block_size) {}

std::shared_ptr<MoEPermuteAlignFwdOp> MoEPermuteAlignFwdOp::from_params(const Params& params,
                                                                        const OpOptions& options) {
  return std::make_shared<MoEPermuteAlignFwdOp>(int_param(params, "num_experts", 1),
                                                int_param(params, "block_size", 64), options);
}

std::vector<AnyImplementation> MoEPermuteAlignFwdOp::kernel_types() {
  return {erase(permute_align::reference()), erase(permute_align::cpu_counting_sort()),
          erase(permute_align::sm90_counting_sort())};
}

MoEPermuteAlignFwdOp::Output MoEPermuteAlignFwdOp::invoke(const Op& op, const Tensor& topk_ids) {
  const Tensor* inputs[] = {&topk_ids};
  Results results = op.call({inputs, {}});
  return {results.take(0), results.take(1), results.take(2)};
}

Results MoEPermuteAlignFwdOp::forward(Call& call) const {
  const Tensor& topk_ids = call.input(0);
  Tensor sorted = call.output(0), blocks = call.output(1), num_rows = call.output(2);
  const permute_align::Call spec{.num_experts = num_experts_,
                                 .block_size = block_size_,
                                 .device = call.device(),
                                 .num_tokens = topk_ids.shape()[0],
                                 .top_k = topk_ids.shape()[1]};
  kernel_for<permute_align::PermuteAlign>(call, spec)
      .run(permute_align::Args{topk_ids, sorted, blocks, num_rows});
  return {std::move(sorted), std::move(blocks), std::move(num_rows)};
}

}  // namespace tileops
