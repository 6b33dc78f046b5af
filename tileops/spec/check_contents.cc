// SPDX-License-Identifier: Apache-2.0
// Signature::check_contents: the spec's `requires` on the contents of metadata tensors.
#include "tileops/core/check.h"
#include "tileops/spec/signature_plan.h"

namespace tileops::spec {
namespace {

constexpr int64_t kMinSteps = 4096;
constexpr int64_t kStepsPerElement = 64;

/// The first read of the tensor's elements in an expression, or null.
const ExprNode* read_of(const ExprNode& node, int32_t input) {
  if (node.op == ExprOp::kSubscript && node.kids[0].op == ExprOp::kTensor &&
      node.kids[0].slot == input) {
    return &node;
  }
  for (const ExprNode& kid : node.kids) {
    if (const ExprNode* found = read_of(kid, input)) return found;
  }
  return nullptr;
}

/// "layout_metadata[3] is 5", with the loop variables where the failed predicate left them.
std::string culprit(const ExprNode& predicate, const std::string& name, int32_t input, Env& env) {
  const ExprNode* read = read_of(predicate, input);
  if (read == nullptr) return name;
  try {
    std::vector<int64_t> at;
    for (size_t i = 1; i < read->kids.size(); ++i) at.push_back(evaluate_int(read->kids[i], env));
    return fmt::format("{}[{}] is {}", name, fmt::join(at, ", "),
                       to_string(to_value(evaluate(*read, env))));
  } catch (const EvalFailure&) {
    return name;
  }
}

}  // namespace

void Signature::check_contents(const CallTensors& call, const CallFacts& facts) const {
  const EntryImpl& entry = entry_->impl();
  const spec::Plan& plan = plan_->plan_of(facts);
  Env env = plan_->env();
  env.indices = facts.indices.data();
  env.inputs = facts.inputs.data();
  env.contents = call.inputs;
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    const auto* requirements = plan.inputs[i].requirements;
    if (requirements == nullptr || !facts.inputs[i].present) continue;
    const std::string& name = entry.inputs[i].name;
    TILEOPS_CHECK(ErrorKind::kDevice, call.inputs[i].device().type == DeviceType::kCPU,
                  "{}: {} is on {}; its contents can be checked on the cpu only", entry.name, name,
                  to_string(call.inputs[i].device()));
    for (const Formula& requirement : *requirements) {
      env.iterations = kMinSteps + kStepsPerElement * call.inputs[i].num_elements();
      try {
        if (evaluate_bool(requirement.expr.root, env)) continue;
      } catch (const EvalFailure& failure) {
        raise_failure(entry, requirement.field, requirement.expr.text, failure);
      }
      raise(ErrorKind::kValue, "{}: {}; the spec requires {}{}", entry.name,
            culprit(requirement.expr.root, name, static_cast<int32_t>(i), env),
            requirement.expr.text, known_text(entry, plan, requirement.expr.root, env));
    }
  }
}

}  // namespace tileops::spec
