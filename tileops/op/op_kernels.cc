// SPDX-License-Identifier: Apache-2.0
// An op's kernels: enumeration (C1) and tuned mode (C2).
#include <algorithm>

#include "tileops/core/check.h"
#include "tileops/op/op.h"

namespace tileops {
namespace {

/// Runs every step, then rethrows the first exception.
class FirstError {
 public:
  template <class Step>
  void run(Step&& step) {
    try {
      step();
    } catch (...) {
      if (first_ == nullptr) first_ = std::current_exception();
    }
  }
  bool any() const { return first_ != nullptr; }
  void rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace

KernelCacheBase& Op::cache(std::string_view interface) const {
  for (const auto& cache : caches_) {
    if (cache->interface() == interface) return *cache;
  }
  raise(ErrorKind::kValue, "{}: the op declares no kernel interface {}", name(), interface);
}

std::vector<BuiltEntry> Op::built_entries(std::string_view interface) const {
  return cache(interface).entries();
}

std::vector<std::shared_ptr<Kernel>> Op::iter_kernels() const {
  std::vector<std::shared_ptr<Kernel>> kernels;
  const auto add = [&](const std::shared_ptr<Kernel>& kernel) {
    if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end())
      kernels.push_back(kernel);
  };
  for (const auto& cache : caches_) {
    for (const BuiltEntry& entry : cache->entries()) add(entry.kernel);
  }
  for (const HeldDelegate& held : held_delegates()) {
    for (const auto& kernel : held.op->iter_kernels()) add(kernel);
  }
  return kernels;
}

std::vector<KernelConfig> Op::kernel_config() const {
  std::vector<KernelConfig> configs;
  for (const auto& cache : caches_) {
    for (const BuiltEntry& entry : cache->entries()) {
      Params config = entry.kernel->config();
      if (config.size() == 0) continue;
      configs.push_back({entry.implementation, std::move(config), entry.kernel->config_origin()});
    }
  }
  return configs;
}

void Op::set_tuned() const {
  tuned_.store(true, std::memory_order_release);
  for (const HeldSlot& slot : held_) slot.op->set_tuned();
}

void Op::request_tune() const {
  set_tuned();
  FirstError errors;
  errors.run([&] { tune_own_kernels(); });
  for (const HeldDelegate& held : held_delegates()) {
    errors.run([&] { held.op->request_tune(); });
  }
  errors.rethrow();
}

void Op::tune_own_kernels() const {
  if (!op_class_.tunable()) return;
  const LaunchPause pause;
  std::lock_guard lock(tuning_);
  FirstError errors;
  for (const auto& cache : caches_) {
    for (const BuiltEntry& entry : cache->entries()) {
      if (entry.kernel->tunable()) errors.run([&] { entry.kernel->request_tune(); });
    }
  }
  for (const auto& [key, kernel] : target_kernels_.built()) {
    errors.run(
        [&, &kernel = kernel] { tune_target_kernel(*kernel, serving_target().value_or("")); });
  }
  tuning_failed_.store(errors.any(), std::memory_order_release);
  errors.rethrow();
}

void Op::kernel_built(const BuiltEntry& entry) const {
  if (!tuned() || !op_class_.tunable() || !entry.kernel->tunable()) return;
  tune_fresh([&] { entry.kernel->request_tune(); });
}

/// Tunes what was built just now; where that throws, the op's next call tries again.
void Op::tune_fresh(const std::function<void()>& tune) const {
  const LaunchPause pause;
  std::lock_guard lock(tuning_);
  try {
    tune();
  } catch (...) {
    tuning_failed_.store(true, std::memory_order_release);
    throw;
  }
}

void Op::tune_target_kernel(TargetKernel& kernel, const std::string& target) const {
  if (kernel.tunable()) {
    kernel.request_tune();
    return;
  }
  warn_once(
      warned_target_tuning_,
      fmt::format("{}: its kernels come from target {}, which offers no tuning", name(), target));
}

}  // namespace tileops
