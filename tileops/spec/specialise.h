// SPDX-License-Identifier: Apache-2.0
// A family case's plan with one instance's parameters folded into it: what a call evaluates.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tileops/spec/plan.h"

namespace tileops::spec {

struct SpecialPlan {
  std::shared_ptr<const Plan> plan;
  std::vector<Step> steps;
  std::vector<ShapeDecl> output_shapes;
  std::vector<DTypeDecl> output_dtypes;
  std::vector<std::optional<ExprNode>> presence;  // of an output that may be left out
  std::vector<ExprNode> rules;                    // of plan->rules
  std::deque<ExprNode> nodes;                     // what `steps` points to
};

/// `env` holds the parameters, and nothing of a call.
SpecialPlan specialise(const EntryImpl& entry, std::shared_ptr<const Plan> plan, Env& env);

}  // namespace tileops::spec
