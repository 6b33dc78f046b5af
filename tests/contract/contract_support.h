// SPDX-License-Identifier: Apache-2.0
// What the contract's tests have in common: a hook at every step of the ops, tensors, warnings, targets.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/error.h"
#include "tileops/core/tensor.h"

namespace tileops::contract {

/// A step of an op, as the hook sees it.
enum class Point { kConstruct, kFeed, kForward, kEntryBuild, kKernel, kTune, kResult };
/// The hook throws to fail a step; true spoils what the step gives (kFeed: the sub-op's input,
/// kResult: the op's result).
using Hook = std::function<bool(Point point, const std::string& tag)>;

/// Counts every step, and asks the hook, which is none unless a HookGuard is alive.
bool at(Point point, const std::string& tag);
/// How often the step was reached since the last reset_counts().
int count_of(Point point, const std::string& tag);
void reset_counts();

/// Sets the hook until it is destroyed. Set before the threads that it concerns start.
class HookGuard {
 public:
  explicit HookGuard(Hook hook);
  ~HookGuard();
  HookGuard(const HookGuard&) = delete;
  HookGuard& operator=(const HookGuard&) = delete;
};

/// x, or a tensor that no op here takes, where the hook spoils what `tag` is fed.
Tensor feed(const std::string& tag, const Tensor& x);
/// y, or a tensor of another shape, where the hook spoils the result of `tag`.
Tensor result_of(const std::string& tag, const Tensor& y);

/// A float32 tensor [m, n] of 1, 2, 3, …
Tensor iota(int64_t m, int64_t n, DType dtype = DType::kF32);
/// The elements, row by row.
std::vector<double> values_of(const Tensor& tensor);
/// Fresh meta tensor of the same facts.
Tensor on_meta(const Tensor& tensor);

/// The kind of what `call` throws; none where it returns.
template <class Call>
std::optional<ErrorKind> kind_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  return std::nullopt;
}

/// The warnings of its lifetime, of all threads.
class Warnings {
 public:
  Warnings();
  ~Warnings();
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  std::vector<std::string> seen() const;
};

/// A target with these builders, known until it is destroyed.
class TargetGuard {
 public:
  explicit TargetGuard(std::string name) : name_(std::move(name)) {}
  ~TargetGuard();
  TargetGuard(const TargetGuard&) = delete;
  TargetGuard& operator=(const TargetGuard&) = delete;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

}  // namespace tileops::contract
