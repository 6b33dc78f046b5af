// SPDX-License-Identifier: Apache-2.0
// The seven steps of a call (D1), target selection (G1-G4) and undo (H).
#include <cstdlib>

#include "tileops/core/check.h"
#include "tileops/core/launch_batch.h"
#include "tileops/core/log.h"
#include "tileops/dispatch/backend.h"
#include "tileops/op/op.h"

namespace tileops {
namespace {

bool check_values_everywhere() {
  static const bool on = [] {
    const char* text = std::getenv("TILEOPS_CHECK_VALUES");
    return text != nullptr && std::string_view(text) == "1";
  }();
  return on;
}

}  // namespace

Results Op::call(const spec::CallTensors& tensors) const { return run_call(tensors, true); }

Results Op::call_as_node(const spec::CallTensors& tensors) const {
  return run_call(tensors, false);
}

Results Op::run_call(const spec::CallTensors& tensors, bool keeps_record) const {
  if (CallMode* mode = CallMode::current()) return mode->call(*this, tensors);
  Call call(*this, tensors);
  call.keeps_record_ = keeps_record;
  try {
    return run_steps(call);
  } catch (const std::exception& e) {
    if (log_on(Log::kExec)) log_line(Log::kExec, fmt::format("op={} failed: {}", name(), e.what()));
    if (call.selected_here_) undo_selection();
    throw;
  }
}

Results Op::run_steps(Call& call) const {
  const spec::CallFacts& facts = call.facts();
  call.record_->facts_.device = default_device_;
  const RecordPtr former = last_record();
  signature_->check(call.tensors_, call.record_->facts_,
                    former == nullptr ? nullptr : &former->facts());
  const bool has_contents = facts.device.type != DeviceType::kMeta;
  if (has_contents && (options_.validate_inputs || check_values_everywhere())) {
    signature_->check_contents(call.tensors_, facts);
  }
  call.device_ = facts.device;
  Results results = compute(call);
  call.close();
  signature_->check_result(call.tensors_, facts, results.span(), construction_tensors_,
                           call.record_->served_by_.empty() ? name() : call.record_->served_by_);
  // Filing can fail and completing cannot: a call that throws leaves last_call as it was (H1).
  if (call.parent_ != nullptr) call.parent_->file(*this, call.record_);
  if (call.keeps_record_) complete(std::move(call.record_));
  return results;
}

Results Op::compute(Call& call) const {
  const spec::CallFacts& facts = call.facts();
  if (facts.writes && !facts.writes_elements) {
    if (!options_.target.empty()) check_target_exists(name(), options_.target);
    return allocate_results(call);
  }
  return call.device_.type == DeviceType::kMeta ? allocate_results(call) : run_selected(call);
}

RecordPtr Op::last_record() const {
  std::lock_guard lock(mutex_);
  return last_call_;
}

Results Op::run_selected(Call& call) const {
  if (!serves_itself_.load(std::memory_order_acquire)) {
    const std::shared_ptr<const ServingTarget> serving = settle_target(call);
    if (serving->builder != nullptr) return run_target(call, *serving);
  }
  call.record_->served_by_ = kBuiltinTarget;
  return forward(call);
}

Results Op::allocate_results(const Call& call) const {
  Results results;
  for (size_t i = 0; i < entry().outputs().size(); ++i) {
    results.push_back(call.output(static_cast<int>(i)));
  }
  return results;
}

std::shared_ptr<const ServingTarget> Op::settle_target(Call& call) const {
  {
    std::lock_guard lock(mutex_);
    if (serving_ != nullptr) return serving_;
  }
  std::shared_ptr<const ServingTarget> selected;
  try {
    selected =
        std::make_shared<const ServingTarget>(select_target(name(), options_.target, call.device_));
    check_serves(*selected);
  } catch (...) {
    std::lock_guard lock(mutex_);
    call.selected_here_ = serving_ == nullptr;
    throw;
  }
  std::lock_guard lock(mutex_);
  if (serving_ == nullptr) {
    serving_ = std::move(selected);
    serves_itself_.store(serving_->builder == nullptr, std::memory_order_release);
    call.selected_here_ = true;
  }
  return serving_;
}

void Op::check_serves(const ServingTarget& serving) const {
  if (serving.builder != nullptr || serving.name == kBuiltinTarget) return;
  const bool composition_alone = op_class_.is_composite() && op_class_.interfaces().empty();
  TILEOPS_CHECK(ErrorKind::kOpNotAvailable, composition_alone,
                "{}: target {} registered no builder for it, and the op's own kernels serve target "
                "builtin only; ask for target builtin or register a builder{}",
                name(), serving.name, load_failures_note());
}

Results Op::run_target(Call& call, const ServingTarget& serving) const {
  TargetKernelKey key{serving.builder, call.device_, {}};
  for (size_t i = 0; i < entry().inputs().size(); ++i) {
    key.inputs.push_back(call.facts().inputs[i]);
    key.inputs.back().strides = {};
  }
  std::shared_ptr<TargetKernel> kernel = target_kernels_.find(key);
  if (kernel == nullptr) kernel = build_target_kernel(key, call, serving);
  if (tuning_failed_.load(std::memory_order_acquire)) tune_own_kernels();
  submit_launches();
  call.record_->served_by_ = serving.name;
  return kernel->run(call.tensors_);
}

std::shared_ptr<TargetKernel> Op::build_target_kernel(const TargetKernelKey& key, const Call& call,
                                                      const ServingTarget& serving) const {
  const auto found = target_kernels_.get_or_build(key, [&] {
    std::vector<spec::TensorFacts> inputs(
        call.facts().inputs.begin(),
        call.facts().inputs.begin() + static_cast<ptrdiff_t>(entry().inputs().size()));
    std::shared_ptr<TargetKernel> kernel =
        (*serving.builder)({name(), call.device_, std::move(inputs), params()});
    TILEOPS_CHECK(ErrorKind::kOpNotAvailable, kernel != nullptr,
                  "{}: the builder of target {} returned nothing that can be called", name(),
                  serving.name);
    return kernel;
  });
  if (found.fresh && tuned() && op_class_.tunable()) {
    tune_fresh([&] { tune_target_kernel(*found.value, serving.name); });
  }
  return found.value;
}

void Op::complete(RecordPtr record) const noexcept {
  std::lock_guard lock(mutex_);
  last_call_.swap(record);
}

void Op::undo_selection() const noexcept {
  target_kernels_.clear();
  for (const auto& cache : caches_) cache->clear();
  std::shared_ptr<const ServingTarget> dropped;
  {
    std::lock_guard lock(mutex_);
    serving_.swap(dropped);
    serves_itself_.store(false, std::memory_order_release);
  }
  for (const HeldSlot& slot : held_) slot.op->undo_selection();
}

size_t Op::TargetKernelKeyHash::operator()(const TargetKernelKey& key) const {
  size_t seed = hash_of(key.builder, static_cast<int>(key.device.type), key.device.index);
  for (const spec::TensorFacts& facts : key.inputs) {
    seed = hash_mix(seed, facts.present ? static_cast<size_t>(facts.dtype) + 1 : 0);
    for (int64_t size : facts.shape) seed = hash_mix(seed, static_cast<size_t>(size));
  }
  return seed;
}

}  // namespace tileops
