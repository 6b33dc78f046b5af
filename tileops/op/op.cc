// SPDX-License-Identifier: Apache-2.0
#include "tileops/op/op.h"

#include <algorithm>

#include "tileops/core/check.h"
#include "tileops/core/log.h"
#include "tileops/op/instance_keys.h"

namespace tileops {
namespace {

void check_metadata_count(const spec::Entry& entry) {
  const auto inputs = entry.inputs();
  const auto count =
      std::count_if(inputs.begin(), inputs.end(), [](const auto& d) { return d.metadata; });
  TILEOPS_CHECK(ErrorKind::kSpec, static_cast<size_t>(count) <= CallRecord::kMaxMetadata,
                "{}: {} metadata inputs; a record keeps at most {}", entry.name(), count,
                CallRecord::kMaxMetadata);
}

/// A composite without kernels of its own has nothing that a forced configuration is for.
void check_forced_config(const OpClass& op_class, const Params& forced) {
  const bool has_no_kernels = op_class.is_composite() && op_class.interfaces().empty();
  TILEOPS_CHECK(ErrorKind::kValue, forced.size() == 0 || !has_no_kernels,
                "{}: kernel_config: the op has no kernels of its own, got {}; give it to the "
                "sub-op whose kernel it is for",
                op_class.name(), to_string(forced));
}

/// Where a call without tensors runs (G1).
Device device_without_tensors(const OpOptions& options,
                              const std::vector<Tensor>& construction_tensors) {
  if (!options.device.empty()) return parse_device(options.device);
  for (const Tensor& tensor : construction_tensors) {
    if (tensor.defined()) return tensor.device();
  }
  return kCpuDevice;
}

}  // namespace

Op::Op(const OpClass& op_class, Params params, OpOptions options,
       std::vector<Tensor> construction_tensors)
    : op_class_(op_class),
      given_params_(std::move(params)),
      options_(std::move(options)),
      construction_tensors_(std::move(construction_tensors)),
      default_device_(device_without_tensors(options_, construction_tensors_)),
      signature_(std::make_shared<const spec::Signature>(op_class.entry(), given_params_,
                                                         construction_tensors_)),
      key_(new_instance_key(op_class.name(), signature_->fingerprint())) {
  check_metadata_count(entry());
  check_forced_config(op_class, options_.kernel_config);
  const std::shared_ptr<const KernelTable> table = kernel_table(op_class.name());
  for (const InterfaceType& interface : op_class.interfaces()) {
    caches_.push_back(interface.make_cache(table, options_.implementation, options_.kernel_config));
  }
  announce_instance(key_, *this);
}

Op::~Op() { retire_instance(key_); }

OpOptions Op::inherited_options() const {
  OpOptions inherited = options_;
  inherited.kernel_config = {};
  return inherited;
}

RecordPtr Op::last_call() const {
  std::lock_guard lock(mutex_);
  TILEOPS_CHECK(ErrorKind::kState, last_call_ != nullptr,
                "{}: no call has completed yet, so there is no last_call", name());
  return last_call_;
}

spec::Cost Op::eval_roofline() const { return price(*last_call()); }

std::optional<std::string> Op::serving_target() const {
  std::lock_guard lock(mutex_);
  if (serving_ == nullptr) return std::nullopt;
  return serving_->builder != nullptr ? serving_->name : std::string(kBuiltinTarget);
}

void Op::warn_once(std::atomic<bool>& done, const std::string& text) const {
  if (!done.exchange(true)) warn(text);
}

}  // namespace tileops
