// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/pre_permute/pre_permute_op.h"

#include <utility>

#include "tileops/core/check.h"
#include "tileops/ops/moe/elements.h"
#include "tileops/ops/moe/op_params.h"

namespace tileops {
namespace pre_permute {

size_t Call::hash() const { return hash_fields(*this); }

std::string Call::to_string() const {
  return fmt::format("{}, E {}, {}, T {}, H {}, K {}{}", tileops::to_string(layout.to_value()),
                     num_experts, dtype_short_name(dtype), num_tokens, hidden, top_k,
                     rows_contiguous ? "" : ", strided rows");
}

Call make_call(const MGroupedLayout& layout, int64_t num_experts, const Args& args) {
  return {.layout = layout,
          .num_experts = num_experts,
          .dtype = args.hidden_states.dtype(),
          .device = args.hidden_states.device(),
          .num_tokens = args.hidden_states.shape()[0],
          .hidden = args.hidden_states.shape()[1],
          .top_k = args.local_expert_ids.shape()[1],
          .rows_contiguous = is_inner_contiguous(args.hidden_states)};
}

}  // namespace pre_permute

MoEPrePermuteFwdOp::MoEPrePermuteFwdOp(MGroupedLayout layout, int64_t num_local_experts,
                                       OpOptions options)
    : TypedOp({{"layout", layout.to_value()}, {"num_local_experts", num_local_experts}},
              std::move(options)),
      layout_(layout),
      num_local_experts_(num_local_experts) {}

std::shared_ptr<MoEPrePermuteFwdOp> MoEPrePermuteFwdOp::from_params(const Params& params,
                                                                    const OpOptions& options) {
  return std::make_shared<MoEPrePermuteFwdOp>(MGroupedLayout::from_value(params.at("layout")),
                                              int_param(params, "num_local_experts", 1), options);
}

std::vector<AnyImplementation> MoEPrePermuteFwdOp::kernel_types() {
  return {erase(pre_permute::reference()), erase(pre_permute::cpu_gather()),
          erase(pre_permute::sm90_counting_sort())};
}

MoEPrePermuteFwdOp::Output MoEPrePermuteFwdOp::invoke(const Op& op, const Tensor& hidden_states,
                                                      const Tensor& local_expert_ids) {
  const Tensor* inputs[] = {&hidden_states, &local_expert_ids};
  Results results = op.call({inputs, {}});
  return {results.take(0), results.take(1), results.take(2)};
}

Results MoEPrePermuteFwdOp::forward(Call& call) const {
  Tensor expert_input = call.output(0), metadata = call.output(1), inverse = call.output(2);
  const pre_permute::Args args{call.input(0), call.input(1), expert_input, metadata, inverse};
  kernel_for<pre_permute::PrePermute>(call, make_call(layout_, num_local_experts_, args)).run(args);
  return {std::move(expert_input), std::move(metadata), std::move(inverse)};
}

}  // namespace tileops
