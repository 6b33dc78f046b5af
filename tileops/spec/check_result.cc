// SPDX-License-Identifier: Apache-2.0
// Signature::check_result and allocate_output: what a call gives back.
#include "tileops/core/check.h"
#include "tileops/spec/signature_plan.h"

namespace tileops::spec {
namespace {

bool shares_storage(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.num_elements() == 0 || b.num_elements() == 0) return false;
  if (a.device().type == DeviceType::kMeta) return false;
  return a.storage() == b.storage() || a.overlaps(b);
}

/// The buffer that the caller gave for an output, or null.
const Tensor* given_buffer(const Signature::Plan& plan, const CallTensors& call, size_t output) {
  for (size_t k = 0; k < plan.buffer_outputs.size() && k < call.outs.size(); ++k) {
    if (plan.buffer_outputs[k] == static_cast<int>(output) && call.outs[k].defined()) {
      return &call.outs[k];
    }
  }
  return nullptr;
}

}  // namespace

Tensor Signature::allocate_output(const CallTensors& call, const CallFacts& facts,
                                  int output) const {
  const auto j = static_cast<size_t>(output);
  const TensorFacts& wanted = facts.outputs[j];
  if (!wanted.present) return {};
  if (const Tensor* out = given_buffer(*plan_, call, j)) return *out;
  const int alias = entry_->impl().output_specs[j].alias;
  if (alias >= 0) return call.inputs[static_cast<size_t>(alias)];
  return Tensor::empty(wanted.shape, wanted.dtype, wanted.device);
}

void Signature::check_result(const CallTensors& call, const CallFacts& facts,
                             std::span<const Tensor> results, std::span<const Tensor> held,
                             std::string_view server) const {
  const EntryImpl& entry = entry_->impl();
  constexpr auto kind = ErrorKind::kBackend;
  TILEOPS_CHECK(kind, results.size() == entry.outputs.size(),
                "{}: {} gave {} outputs; the spec says {}", entry.name, server, results.size(),
                entry.outputs.size());
  for (size_t j = 0; j < results.size(); ++j) {
    const std::string& name = entry.outputs[j].name;
    const Tensor& result = results[j];
    const TensorFacts& wanted = facts.outputs[j];
    TILEOPS_CHECK(kind, result.defined() == wanted.present,
                  "{}: {} gave {} {}; the spec says that it is {} in this call", entry.name, server,
                  result.defined() ? "a" : "no", name, wanted.present ? "there" : "absent");
    if (!wanted.present) continue;
    TILEOPS_CHECK(kind, result.shape() == wanted.shape, "{}: {} of {}; the spec says {}",
                  entry.name, shape_text(name, result.shape()), server, to_string(wanted.shape));
    TILEOPS_CHECK(kind, result.dtype() == wanted.dtype,
                  "{}: {} of {} has dtype {}; the spec says {}", entry.name, name, server,
                  dtype_name(result.dtype()), dtype_name(wanted.dtype));
    TILEOPS_CHECK(kind, result.device() == wanted.device,
                  "{}: {} of {} is on {}; the call is on {}", entry.name, name, server,
                  to_string(result.device()), to_string(wanted.device));
    const Tensor* out = given_buffer(*plan_, call, j);
    const int alias = entry.output_specs[j].alias;
    if (alias >= 0) out = &call.inputs[static_cast<size_t>(alias)];
    if (out != nullptr) {
      TILEOPS_CHECK(kind, result.is_same_view(*out), "{}: {} of {} is not the {} that was given",
                    entry.name, name, server,
                    alias >= 0 ? entry.inputs[static_cast<size_t>(alias)].name : "out");
      continue;
    }
    TILEOPS_CHECK(kind, result.is_contiguous(),
                  "{}: {} of {} has strides {}; the spec says contiguous", entry.name, name, server,
                  to_string(result.strides()));
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      TILEOPS_CHECK(kind, !shares_storage(result, call.inputs[i]),
                    "{}: {} of {} shares storage with {}", entry.name, name, server,
                    entry.inputs[i].name);
    }
    for (const Tensor& tensor : held) {
      TILEOPS_CHECK(kind, !shares_storage(result, tensor),
                    "{}: {} of {} shares storage with a tensor that the instance holds", entry.name,
                    name, server);
    }
    for (size_t other = 0; other < j; ++other) {
      TILEOPS_CHECK(kind, !shares_storage(result, results[other]),
                    "{}: {} of {} shares storage with {}", entry.name, name, server,
                    entry.outputs[other].name);
    }
  }
}

}  // namespace tileops::spec
