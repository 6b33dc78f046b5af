// SPDX-License-Identifier: Apache-2.0
// What a signature infers, as data: for those who evaluate it over sizes that are no numbers yet,
// such as a compiler with dynamic shapes.
#pragma once

#include <string>
#include <string_view>

#include "tileops/spec/entry.h"
#include "tileops/spec/facts.h"
#include "tileops/spec/signature.h"

namespace tileops::spec {

/// The inference of an instance's outputs, parameters folded in, as JSON:
///   {"op", "inputs": [{"name", "cpu"}], "known": {index: value}, "deciding": [input], "cases": []}
/// A case serves the calls in which bit i of its number tells whether input deciding[i] is present:
///   "ranks"   [shape as the spec writes it, dimensions, whether more are taken] per input
///   "steps"   in order; one of an absent input is left out, an index that is known stays:
///             ["dim" | "dtype", input, dim, index]           index := the size, the dtype
///             ["affine", input, dim, index, scale, offset]   index := (size - offset) // scale
///             ["affine_at", input, dim, index, tree]         the same, from tree's values at 0, 1
///             ["segment", input, dim, index, rank]           index := the sizes beyond rank's
///             ["let", index, tree]                           where all that tree reads is known
///   "outputs" [{"name", "alias": input or -1, "cpu", "when": tree, "shape": [tree], "dtype": tree}]
///             ["*", tree] in a shape is all the sizes that tree gives; strides are contiguous
/// A tree is a literal or [operator, operand…]: "+", "if" (then, condition, else), "index" i,
/// "tensor" i, "dtype" name, the functions of docs/spec.md; a comprehension is ["all of", body,
/// [loop variable, start, stop]…].
std::string inference_json(const Signature& signature);

/// An expression over a call's indices, in the language of the spec: "T * K <= 512", "E".
/// Immutable: read once, evaluated without parsing or allocating. The signature must outlive it.
class CallExpr {
 public:
  /// Errors: kSpec (it cannot be read, or names what the entry lacks).
  CallExpr(const Signature& signature, std::string_view text);
  CallExpr(CallExpr&&) noexcept;
  ~CallExpr();

  const std::string& text() const;
  /// A size; 1 or 0 for a predicate. Errors: kSpec, kShape (overflow).
  int64_t evaluate(const CallFacts& facts) const;
  /// Its tree, as inference_json has trees.
  std::string json() const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tileops::spec
