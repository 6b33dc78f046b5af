// SPDX-License-Identifier: Apache-2.0
// What one instance's signature evaluates: its parameters as values and its family cases' plans.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tileops/spec/entry_impl.h"
#include "tileops/spec/facts.h"
#include "tileops/spec/plan.h"
#include "tileops/spec/signature.h"
#include "tileops/spec/specialise.h"

namespace tileops::spec {

struct Signature::Plan {
  std::vector<Val> params;
  std::vector<TensorFacts> construction;
  /// The inputs whose presence chooses a case, and the plan of each combination (bit i: input i of
  /// the list is present).
  std::vector<int> deciding_inputs;
  std::vector<SpecialPlan> cases;
  std::array<IndexValue, kMaxIndices> base{};  // the indices that construction knows
  std::vector<std::vector<int>> groups;        // inputs that come together
  std::vector<int> buffer_outputs;             // output slot of each entry of CallTensors::outs
  std::vector<int> optional_outputs;
  std::vector<int> mutated_inputs;
  /// Effect branches by bits: a given buffer, then a mutation, then an omitted output.
  std::vector<std::string> branches;

  Env env() const {
    Env env;
    env.params = params;
    env.construction = construction;
    return env;
  }
  const spec::Plan& plan_of(const CallFacts& facts) const { return *case_of(facts).plan; }
  const SpecialPlan& case_of(const CallFacts& facts) const {
    size_t bits = 0;
    for (size_t i = 0; i < deciding_inputs.size(); ++i) {
      bits |= static_cast<size_t>(facts.inputs[static_cast<size_t>(deciding_inputs[i])].present)
              << i;
    }
    return cases[bits];
  }
};

/// " with K = 2048 (from a), layout.max_m = 8": the values that the names of an expression have.
std::string known_text(const EntryImpl& entry, const Plan& plan, const ExprNode& node, Env& env);
/// As messages show a tensor: "b has shape [8, 4096, 2047]".
std::string shape_text(std::string_view tensor, const Dims& shape);
/// "K % 8 == 0 failed: division by zero" as an error of the entry's field. Overflow is kShape.
[[noreturn]] void raise_failure(const EntryImpl& entry, const std::string& field,
                                const std::string& expression, const EvalFailure& failure);

/// Runs steps over tensors' facts; fills `indices`. Errors: kShape, kDType, kSpec.
class StepRunner {
 public:
  StepRunner(const EntryImpl& entry, const Plan& plan, std::span<const TensorDecl> decls,
             std::span<const TensorPlan> tensors, const TensorFacts* facts, IndexValue* indices,
             Env& env)
      : entry_(entry),
        plan_(plan),
        decls_(decls),
        tensors_(tensors),
        facts_(facts),
        indices_(indices),
        env_(env) {}

  void ranks() const;
  void run(std::span<const Step> steps);
  /// `nodes` are the rules' expressions, folded; null for the rules' own, at construction.
  void rules(std::span<const Formula* const> rules, const ExprNode* nodes);

 private:
  void take(const Step& step);
  void dtype(const Step& step);
  void dim(const Step& step, int64_t size);
  void affine(const Step& step, int64_t size, int64_t scale, int64_t offset);
  void segment(const Step& step);
  void let(const Step& step);
  int64_t size_at(const Step& step) const;
  [[noreturn]] void wrong_shape(const Step& step) const;
  [[noreturn]] void unsolvable(const Step& step, int64_t size) const;
  [[noreturn]] void wrong_dtype(const Step& step) const;

  const EntryImpl& entry_;
  const Plan& plan_;
  std::span<const TensorDecl> decls_;
  std::span<const TensorPlan> tensors_;
  const TensorFacts* facts_;
  IndexValue* indices_;
  Env& env_;
};

}  // namespace tileops::spec
