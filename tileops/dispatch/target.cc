// SPDX-License-Identifier: Apache-2.0
#include "tileops/dispatch/target.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/ranges.h>

#include "tileops/core/check.h"
#include "tileops/core/log.h"
#include "tileops/dispatch/backend.h"
#include "tileops/spec/registry.h"

namespace tileops {
namespace {

struct Target {
  std::map<std::string, std::shared_ptr<const TargetBuilder>, std::less<>> builders;  // by op
  std::shared_ptr<const TargetDetector> detector;
};

struct Targets {
  std::mutex mutex;  // guards everything below
  std::map<std::string, Target, std::less<>> by_name;
  std::string default_name;
};

Targets& targets() {
  static auto& instance = *new Targets;
  return instance;
}

class FunctionKernel final : public TargetKernel {
 public:
  explicit FunctionKernel(std::function<Results(const spec::CallTensors&)> run)
      : run_(std::move(run)) {}
  Results run(const spec::CallTensors& tensors) override { return run_(tensors); }

 private:
  std::function<Results(const spec::CallTensors&)> run_;
};

void check_name(std::string_view target) {
  TILEOPS_CHECK(ErrorKind::kValue, !target.empty() && target != kBuiltinTarget,
                "target name \"{}\" cannot be registered; choose another", target);
}

std::string known_targets(const Targets& t) {
  std::vector<std::string_view> names{kBuiltinTarget};
  for (const auto& [name, target] : t.by_name) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_known(const Targets& t, std::string_view op, std::string_view name) {
  TILEOPS_CHECK(ErrorKind::kValue, name == kBuiltinTarget || t.by_name.contains(name),
                "{}: target {} is not known; known: {}{}", op, name, known_targets(t),
                load_failures_note());
}

void erase_if_empty(Targets& t, std::string_view name) {
  const auto it = t.by_name.find(name);
  if (!it->second.builders.empty() || it->second.detector != nullptr) return;
  if (t.default_name == name) t.default_name.clear();
  t.by_name.erase(it);
}

/// The target that claims the device; empty where none does.
std::string detect(Device device) {
  std::vector<std::pair<std::string, std::shared_ptr<const TargetDetector>>> detectors;
  {
    Targets& t = targets();
    std::lock_guard lock(t.mutex);
    for (const auto& [name, target] : t.by_name) {
      if (target.detector != nullptr) detectors.emplace_back(name, target.detector);
    }
  }
  std::vector<std::string> claims;
  for (const auto& [name, detector] : detectors) {
    try {
      if ((*detector)(device)) claims.push_back(name);
    } catch (const std::exception& e) {
      raise(ErrorKind::kBackend, "the detector of target {} threw for {}: {}", name,
            to_string(device), e.what());
    }
  }
  TILEOPS_CHECK(ErrorKind::kAmbiguousTarget, claims.size() <= 1,
                "targets {} all claim {}; name one with `target`, or set the process default",
                fmt::join(claims, ", "), to_string(device));
  return claims.empty() ? std::string() : claims.front();
}

}  // namespace

std::shared_ptr<TargetKernel> make_target_kernel(
    std::function<Results(const spec::CallTensors&)> run) {
  if (run == nullptr) return nullptr;
  return std::make_shared<FunctionKernel>(std::move(run));
}

void register_target_builder(std::string_view target, std::string_view op, TargetBuilder builder) {
  check_name(target);
  TILEOPS_CHECK(ErrorKind::kValue, spec::find_entry(op) != nullptr,
                "target {}: cannot register a builder for {}: no spec entry of that name", target,
                op);
  TILEOPS_CHECK(ErrorKind::kValue, builder != nullptr, "target {}: the builder for {} is empty",
                target, op);
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  const auto it = t.by_name.find(target);
  TILEOPS_CHECK(ErrorKind::kValue, it == t.by_name.end() || !it->second.builders.contains(op),
                "target {}: a builder for {} is registered already", target, op);
  t.by_name[std::string(target)].builders.emplace(
      op, std::make_shared<const TargetBuilder>(std::move(builder)));
}

void register_target_detector(std::string_view target, TargetDetector detector) {
  check_name(target);
  TILEOPS_CHECK(ErrorKind::kValue, detector != nullptr, "target {}: the detector is empty", target);
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  const auto it = t.by_name.find(target);
  TILEOPS_CHECK(ErrorKind::kValue, it == t.by_name.end() || it->second.detector == nullptr,
                "target {}: a detector is registered already", target);
  t.by_name[std::string(target)].detector =
      std::make_shared<const TargetDetector>(std::move(detector));
}

void unregister_target_builder(std::string_view target, std::string_view op) {
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  const auto it = t.by_name.find(target);
  TILEOPS_CHECK(ErrorKind::kValue, it != t.by_name.end() && it->second.builders.contains(op),
                "target {}: no builder for {} is registered", target, op);
  it->second.builders.erase(it->second.builders.find(op));
  erase_if_empty(t, target);
}

void unregister_target_detector(std::string_view target) {
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  const auto it = t.by_name.find(target);
  TILEOPS_CHECK(ErrorKind::kValue, it != t.by_name.end() && it->second.detector != nullptr,
                "target {}: no detector is registered", target);
  it->second.detector = nullptr;
  erase_if_empty(t, target);
}

void unregister_target(std::string_view target) {
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  const auto it = t.by_name.find(target);
  TILEOPS_CHECK(ErrorKind::kValue, it != t.by_name.end(), "target {} is not known; known: {}",
                target, known_targets(t));
  t.by_name.erase(it);
  if (t.default_name == target) t.default_name.clear();
}

std::vector<std::string> target_names() {
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  std::vector<std::string> names;
  for (const auto& [name, target] : t.by_name) names.push_back(name);
  return names;
}

std::string default_target() {
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  return t.default_name;
}

void set_default_target(std::string_view target) {
  load_backends();
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  if (!target.empty()) check_known(t, "set_default_target", target);
  t.default_name = target;
}

ServingTarget select_target(std::string_view op, std::string_view wanted, Device device) {
  load_backends();
  std::string name(wanted);
  if (name.empty()) name = default_target();
  if (name.empty()) name = detect(device);
  if (name.empty()) name = kBuiltinTarget;
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  check_known(t, op, name);
  ServingTarget serving{name, nullptr};
  if (const auto target = t.by_name.find(name); target != t.by_name.end()) {
    const auto builder = target->second.builders.find(op);
    if (builder != target->second.builders.end()) serving.builder = builder->second;
  }
  if (log_on(Log::kTarget)) log_line(Log::kTarget, fmt::format("op={} target={}", op, name));
  return serving;
}

void check_target_exists(std::string_view op, std::string_view target) {
  load_backends();
  Targets& t = targets();
  std::lock_guard lock(t.mutex);
  check_known(t, op, target);
}

}  // namespace tileops
