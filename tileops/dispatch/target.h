// SPDX-License-Identifier: Apache-2.0
// Targets: named sets of third-party kernels that can serve an op whole.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/value.h"
#include "tileops/dispatch/results.h"
#include "tileops/spec/facts.h"

namespace tileops {

/// The name of the target that is the tree's own kernels.
inline constexpr std::string_view kBuiltinTarget = "builtin";

/// A target's kernel for one op, one set of parameters and one set of input facts.
class TargetKernel {
 public:
  virtual ~TargetKernel() = default;
  /// Computes the call: results in the signature's order; a given `out` is filled and returned.
  /// Thread safety: called from several threads at once.
  virtual Results run(const spec::CallTensors& tensors) = 0;
  /// Whether the kernel offers tuning; where it does not, tuned mode warns once per op instance.
  virtual bool tunable() const { return false; }
  virtual void request_tune() {}
};

/// What a builder may read: facts and parameters, never contents.
struct BuildRequest {
  std::string_view op;
  Device device;
  /// Facts of every declared input in the signature's order; an absent one keeps its slot.
  std::vector<spec::TensorFacts> inputs;
  const Params& params;
};

/// Builds the target's kernel for a request; null means that it cannot, which the caller turns into
/// kOpNotAvailable. What it throws reaches the caller unchanged.
using TargetBuilder = std::function<std::shared_ptr<TargetKernel>(const BuildRequest&)>;
/// Whether the target claims a device.
using TargetDetector = std::function<bool(Device)>;

/// Wraps a function as a target kernel; null for an empty function.
std::shared_ptr<TargetKernel> make_target_kernel(
    std::function<Results(const spec::CallTensors&)> run);

/// Each registration makes the target known. Errors: kValue for an unknown op (no spec entry), a
/// pair that is registered already, an empty name or `builtin`; nothing changes then.
void register_target_builder(std::string_view target, std::string_view op, TargetBuilder builder);
void register_target_detector(std::string_view target, TargetDetector detector);
/// Takes one registration back; a target with none left is no longer known, nor the default. Ops
/// that selected the target keep what they hold. Errors: kValue where there is no such
/// registration.
void unregister_target_builder(std::string_view target, std::string_view op);
void unregister_target_detector(std::string_view target);
/// Takes every registration of a target back. Errors: kValue for an unknown target.
void unregister_target(std::string_view target);

/// Names of the known targets, sorted; `builtin` is not among them.
std::vector<std::string> target_names();
/// The process default target: asked before the detectors; "" (none) at the start.
std::string default_target();
/// Errors: kValue for an unknown target, naming the known ones.
void set_default_target(std::string_view target);

/// What G1 settles for an instance: a target and, where it registered one for the op, its builder.
struct ServingTarget {
  std::string name;
  std::shared_ptr<const TargetBuilder> builder;  // null: the op's own composition or kernels serve
};

/// Selects the target of an op: `wanted`, else the process default, else the detectors' claim on
/// `device`, else `builtin`. Loads the backends first, where that has not happened yet.
/// Errors: kValue (unknown target), kAmbiguousTarget (names sorted), kBackend (a detector threw).
ServingTarget select_target(std::string_view op, std::string_view wanted, Device device);

/// Checks that a target named by a user exists. Errors: kValue naming the known ones.
void check_target_exists(std::string_view op, std::string_view target);

}  // namespace tileops
