// SPDX-License-Identifier: Apache-2.0
// The unification plan of one family case: in which order the indices are solved, from what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tileops/spec/entry_impl.h"

namespace tileops::spec {

struct Step {
  enum class Op : uint8_t {
    kDTypeAllowed,  // dtype is one of `dtypes`
    kDTypeSolve,    // index := dtype, one of `dtypes`; equal where the index is known
    kDTypeEqual,    // dtype == node
    kDim,           // index := size, or equal where the index is known
    kAffine,        // scale * index + offset = size, solved for index
    kAffineAt,      // the same, scale and offset evaluated from node
    kConstant,      // size == offset
    kEqual,         // size == node
    kSegment,       // index := the sizes between, or equal
    kLet,           // index := node
  };
  Op op = Op::kDim;
  int16_t tensor = -1;
  int16_t dim = 0;  // counted from the end where negative
  int16_t index = -1;
  int16_t term = 0;  // of the tensor's shape
  uint32_t dtypes = 0;
  int64_t scale = 1;
  int64_t offset = 0;
  const ExprNode* node = nullptr;
};

struct TensorPlan {
  const ShapeDecl* shape = nullptr;
  const DTypeDecl* dtype = nullptr;
  const std::vector<Formula>* requirements = nullptr;
  int16_t rank = 0;  // exactly, or at least where there is a segment
  bool has_segment = false;
};

struct Plan {
  CaseKey key;
  std::vector<TensorPlan> construction, inputs, outputs;
  std::vector<Step> construction_steps, steps;
  std::vector<const Formula*> construction_rules, rules;
  /// Where an index comes from: an input's slot, kConstructionSlot + a construction tensor's, or
  /// -1.
  std::vector<int> origin;
};

/// A fault that keeps a plan from being made.
struct PlanFault {
  std::string code;
  Place place;
  std::string message;
};

/// Builds the plan of a case; faults are added to `faults`.
Plan build_plan(const EntryImpl& entry, const CaseKey& key, std::vector<PlanFault>& faults);

/// Every consistent combination of the discriminants' labels.
std::vector<CaseKey> all_cases(const EntryImpl& entry);

}  // namespace tileops::spec
