// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/routing.h"

#include "tileops/core/check.h"
#include "tileops/ops/moe/op_params.h"

namespace tileops {

Params Routing::to_params() const {
  return {{"top_k", top_k},
          {"scoring_func", scoring_func == ScoringFunc::kSoftmax ? "softmax" : "sigmoid"},
          {"renormalize", renormalize},
          {"num_expert_group", num_expert_group},
          {"topk_group", topk_group},
          {"routed_scaling_factor", routed_scaling_factor}};
}

Routing Routing::from_params(const Params& params) {
  const Value* scoring = params.find("scoring_func");
  const bool known =
      scoring == nullptr || *scoring == Value("softmax") || *scoring == Value("sigmoid");
  TILEOPS_CHECK(ErrorKind::kValue, known, "scoring_func must be softmax or sigmoid, got {}",
                to_string(*scoring));
  const bool sigmoid = scoring != nullptr && *scoring == Value("sigmoid");
  const Routing plain;
  return {.top_k = int_param(params, "top_k", plain.top_k),
          .scoring_func = sigmoid ? ScoringFunc::kSigmoid : ScoringFunc::kSoftmax,
          .renormalize = bool_param(params, "renormalize", plain.renormalize),
          .num_expert_group = int_param(params, "num_expert_group", plain.num_expert_group),
          .topk_group = int_param(params, "topk_group", plain.topk_group),
          .routed_scaling_factor =
              float_param(params, "routed_scaling_factor", plain.routed_scaling_factor)};
}

Value Routing::to_value() const {
  Value::List values;
  for (const auto& [name, value] : to_params()) values.push_back(value);
  return values;
}

}  // namespace tileops
