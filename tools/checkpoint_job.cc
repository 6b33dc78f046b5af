// SPDX-License-Identifier: Apache-2.0
#include "tools/checkpoint_job.h"

#include <chrono>
#include <string_view>

#include <fmt/format.h>

#include "tileops/checkpoint/moe_layer.h"
#include "tileops/core/check.h"
#include "tileops/core/safetensors.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"
#include "tileops/ops/moe/fused_moe_shared/fused_moe_shared_op.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

constexpr const char* kHidden = "hidden";
constexpr const char* kExpected = "expected";

MoELayerCheckpoint open_layer(const JobOptions& options) {
  const std::string text = fmt::format("layer {} of {}", options.layer, options.checkpoint);
  progress("reading " + text);
  const auto show = [&](const LoadProgress& state) {
    progress(fmt::format("stacking {}: {} of {} MB", text, state.done_bytes / 1'000'000,
                         state.total_bytes / 1'000'000));
  };
  MoELayerCheckpoint layer =
      open_moe_layer(options.checkpoint, options.layer,
                     {.transposed = TransposedWeights::kCopy, .progress = show});
  clear_progress();
  return layer;
}

/// [..., C] as [T, C].
Tensor rows_of(const Tensor& tensor) {
  if (tensor.rank() < 2) return tensor;
  Shape leading = tensor.shape();
  leading[leading.size() - 1] = 1;
  return tensor.reshape({num_elements(leading), tensor.size(-1)});
}

Tensor hidden_states(const SafetensorsFile& file, const MoELayerCheckpoint& layer) {
  const DType dtype = layer.w_gate_up.dtype();
  const int64_t size = layer.w_gate_up.size(2);
  const Tensor hidden = file.contains(kHidden) ? file.tensor(kHidden) : Tensor();
  const bool fits =
      hidden.defined() && hidden.dtype() == dtype && hidden.rank() >= 2 && hidden.size(-1) == size;
  TILEOPS_CHECK(ErrorKind::kIo, fits, "{}: tensor {}: expected {}[..., {}], found {}", file.path(),
                kHidden, dtype_name(dtype), size, hidden.defined() ? facts_text(hidden) : "none");
  return rows_of(hidden);
}

void set_inputs(const MoELayerCheckpoint& layer, const Tensor& hidden, const spec::Entry& entry,
                Job& job) {
  using Microseconds = std::chrono::duration<double, std::micro>;
  const auto start = std::chrono::steady_clock::now();
  const Tensor logits = layer.gating_logits(hidden);
  job.router_us = Microseconds(std::chrono::steady_clock::now() - start).count();
  job.inputs.resize(entry.inputs().size());
  const std::pair<std::string_view, Tensor> tensors[] = {
      {"hidden_states", hidden},
      {"gating_output", logits},
      {"w_gate_up", layer.w_gate_up},
      {"w_down", layer.w_down},
      {"b_gate_up", layer.b_gate_up},
      {"b_down", layer.b_down},
      {"correction_bias", layer.correction_bias},
      {"shared_w_gate_up", layer.shared_w_gate_up},
      {"shared_w_down", layer.shared_w_down}};
  for (const auto& [name, tensor] : tensors) {
    const int slot = entry.input_slot(name);
    if (slot >= 0) job.inputs[static_cast<size_t>(slot)] = tensor;
  }
}

/// The outputs that add up to what the model's block gives.
std::vector<std::string> block_outputs(const MoELayerCheckpoint& layer, const spec::Entry& entry,
                                       const std::string& file) {
  const bool has_shared = layer.shared_w_gate_up.defined();
  if (entry.output_slot("shared_output") >= 0) {
    if (has_shared) return {"shared_output", "routed_output"};
    return {"routed_output"};
  }
  TILEOPS_CHECK(ErrorKind::kValue, !has_shared,
                "{}: tensor {}: this layer has shared experts, whose part {} does not compute; run "
                "{}",
                file, kExpected, entry.name(), FusedMoESharedExpertFwdOp::kName);
  return {"output"};
}

void read_expected(const SafetensorsFile& file, const MoELayerCheckpoint& layer,
                   const spec::Entry& entry, Job& job) {
  for (const std::string& name : file.names()) {
    if (name == kHidden) continue;
    if (name == kExpected) {
      const auto outputs = block_outputs(layer, entry, file.path());
      job.expected.push_back({outputs, rows_of(file.tensor(name))});
      continue;
    }
    read_expected_output(file, name, "hidden, expected", entry, job);
    job.expected.back().sum = rows_of(job.expected.back().sum);
  }
  job.expected_by = expected_by(file);
}

}  // namespace

void read_checkpoint_job(const JobOptions& options, const spec::Entry& entry, Job& job) {
  const bool is_layer =
      entry.name() == FusedMoEFwdOp::kName || entry.name() == FusedMoESharedExpertFwdOp::kName;
  TILEOPS_CHECK(ErrorKind::kValue, is_layer, "{}: --checkpoint is for {} and {}", entry.name(),
                FusedMoEFwdOp::kName, FusedMoESharedExpertFwdOp::kName);
  const SafetensorsFile file = SafetensorsFile::open(options.hidden);
  const MoELayerCheckpoint layer = open_layer(options);
  Params params = layer.params();
  for (const auto& [name, value] : job.params) params.set(name, value);
  job.params = params;
  set_inputs(layer, hidden_states(file, layer), entry, job);
  read_expected(file, layer, entry, job);
  job.source = fmt::format("{} ({}), layer {}; {}", options.checkpoint, layer.model_type,
                           options.layer, options.hidden);
}

}  // namespace tileops::tools
