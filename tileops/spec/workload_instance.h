// SPDX-License-Identifier: Apache-2.0
// One workload case with its indices solved: the facts of every input, and how to fill it.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "tileops/spec/signature_plan.h"
#include "tileops/spec/workload.h"

namespace tileops::spec {

class WorkloadInstance {
 public:
  /// Errors: those of Signature's construction; kSpec where a size cannot be determined.
  WorkloadInstance(std::shared_ptr<const Entry> entry, const WorkloadCase& which);

  const Signature& signature() const { return signature_; }
  /// The case with every free index.
  const WorkloadCase& which() const { return which_; }
  const CaseKey& key() const { return key_; }
  /// Shape and dtype of input i; `present` is false where the case leaves it out. Errors: kSpec.
  TensorFacts input_facts(size_t i) const;
  /// Fills a contiguous CPU tensor of those facts. Errors: kSpec.
  void fill(size_t i, const Tensor& tensor, uint64_t seed) const;

 private:
  Env env() const;
  void determine();

  std::shared_ptr<const Entry> entry_;
  WorkloadCase which_;
  Signature signature_;
  std::vector<Val> values_;  // of the parameters, then of the generators' arguments
  std::array<IndexValue, kMaxIndices> indices_{};
  CallFacts facts_;  // only who is present
  CaseKey key_;
};

}  // namespace tileops::spec
