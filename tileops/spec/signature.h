// SPDX-License-Identifier: Apache-2.0
// Signature: an entry bound to one instance's parameters. Checks calls, infers and checks results.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/core/value.h"
#include "tileops/spec/entry.h"
#include "tileops/spec/facts.h"

namespace tileops::spec {

/// Immutable after construction; every member may be called from several threads at once.
class Signature {
 public:
  /// Checks the parameters (types, enums, sum-type invariants), fills in defaults, chooses the
  /// cases of type families that the parameters decide, and checks every rule that construction
  /// knows enough for. Construction-time tensors come in the spec's order. Errors: kValue, kType
  /// naming op, parameter, what the spec says, what came.
  Signature(std::shared_ptr<const Entry> entry, const Params& params,
            std::span<const Tensor> construction_tensors = {});
  ~Signature();
  Signature(const Signature&) = delete;
  Signature& operator=(const Signature&) = delete;

  const Entry& entry() const { return *entry_; }
  const std::shared_ptr<const Entry>& shared_entry() const { return entry_; }
  /// All parameters in the spec's order, defaults filled in.
  const Params& params() const { return params_; }

  /// Checks a call and fills `facts`: solves the indices, evaluates `let`, checks refinements,
  /// dtypes, devices (all on one, those that the spec puts on the CPU aside), strides, presence,
  /// effects (an `out` that overlaps an input), and infers every output. Evaluates a compiled plan:
  /// parses nothing, allocates nothing unless it fails. What a `former` call of this signature
  /// passed with is taken from there where the facts of the inputs are the same.
  /// Errors: kShape, kDType, kDevice, kType, kValue; one line, as "What a failed check says" has
  /// it.
  void check(const CallTensors& call, CallFacts& facts, const CallFacts* former = nullptr) const;

  /// Checks what a call returned against `facts.outputs`: count, absent outputs, shape, dtype,
  /// device, strides, identity of a given `out` and of aliases; a fresh output shares no storage
  /// with an input, with `held` (tensors of the instance) or with another output. Errors: kBackend
  /// naming op, output, expected, found and `server` (what computed it).
  void check_result(const CallTensors& call, const CallFacts& facts,
                    std::span<const Tensor> results, std::span<const Tensor> held,
                    std::string_view server) const;

  /// Fresh tensors of the inferred outputs on `device`; a given `out` is taken as it is, an absent
  /// output is undefined. Errors: kOutOfMemory.
  Tensor allocate_output(const CallTensors& call, const CallFacts& facts, int output) const;

  /// Checks the contents of metadata tensors against the spec's `requires` (CPU tensors).
  /// Errors: kValue naming op, tensor, the first bad index and its value.
  void check_contents(const CallTensors& call, const CallFacts& facts) const;

  /// Eight hexadecimal digits of what is called and checked alike: the signature and the
  /// parameters. The same in every process.
  std::string fingerprint() const;

  /// The value of an index, parameter or let by name, for messages and tools. Errors: kValue.
  Value value_of(const CallFacts& facts, std::string_view name) const;

  struct Plan;
  /// What the checks evaluate; for this folder's sources alone.
  const Plan& plan() const { return *plan_; }

 private:
  std::shared_ptr<const Entry> entry_;
  Params params_;
  std::unique_ptr<const Plan> plan_;
};

}  // namespace tileops::spec
