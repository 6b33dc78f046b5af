// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_row.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tileops/core/check.h"
#include "tileops/core/safetensors.h"
#include "tileops/cuda/copy.h"
#include "tileops/ops/moe/packed_experts.h"
#include "tileops/perf/report.h"
#include "tileops/perf/timer.h"
#include "tileops/spec/registry.h"
#include "tools/compare.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

constexpr int64_t kSharedBytes = int64_t{256} << 20;  // of an input from which sets share it
constexpr double kMaxSets = 8;
constexpr double kSetsBytes = 2e9;       // of all sets' own inputs
constexpr double kReferenceFlops = 4e9;  // what the reference may take: some seconds

int64_t size_in_bytes(const Tensor& tensor) {
  return tensor.defined() ? tensor.num_elements() * dtype_bytes(tensor.dtype()) : 0;
}

/// What is compared, and the price of the call, which only a call on the CPU can always tell.
struct Truth {
  std::string by;
  Results results;
  std::vector<Specified> specified;
  int64_t first_token = -1, num_tokens = 0;  // a part of the tokens; -1: all
  std::optional<spec::Cost> cost;
};

Truth compute_on_cpu(const Job& job, const std::vector<Tensor>& inputs,
                     const std::string& implementation, const std::string& by) {
  const auto op =
      job.make_op({.target = std::string(kBuiltinTarget), .implementation = implementation});
  Truth truth{.by = by};
  {
    const PoisonedAllocations poisoned;
    truth.results = op->call({inputs, {}});
  }
  for (const Tensor& result : truth.results.span()) {
    truth.specified.push_back(result.defined() ? written(result.contiguous()) : Specified());
  }
  try {
    truth.cost = op->eval_roofline();
  } catch (const Error&) {
    truth.cost = std::nullopt;  // a formula that cannot be evaluated: the row has no floor
  }
  return truth;
}

bool leads_with_tokens(const spec::TensorDecl& decl) { return decl.shape_text.starts_with("[T,"); }

/// Whether output rows belong to tokens, so that a part of the tokens can be checked alone.
bool is_tokenwise(const spec::Entry& entry) {
  const auto& outputs = entry.outputs();
  return entry.inputs()[0].shape_text.starts_with("[T,") &&
         std::all_of(outputs.begin(), outputs.end(), leads_with_tokens);
}

/// The reference on some tokens in the middle.
Truth reference_of_some_tokens(const Job& job, const spec::Entry& entry, double flops) {
  const int64_t all = job.inputs[0].shape()[0];
  const int64_t some = std::clamp<int64_t>(
      static_cast<int64_t>(static_cast<double>(all) * kReferenceFlops / flops), 1, all);
  const int64_t first = (all - some) / 2;
  std::vector<Tensor> inputs = job.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined() && leads_with_tokens(entry.inputs()[i])) {
      inputs[i] = inputs[i].narrow(0, first, some);
    }
  }
  Truth truth = compute_on_cpu(job, inputs, "reference",
                               fmt::format("reference, {} of {} tokens", some, all));
  truth.first_token = first;
  truth.num_tokens = some;
  return truth;
}

/// The reference where it takes seconds; else, for a GPU, the CPU's own kernels, which their tests
/// hold to it, and for those the reference on some tokens.
Truth truth_of(const Job& job, const spec::Entry& entry, Device device) {
  const Truth fast = compute_on_cpu(job, job.inputs, "", "the CPU's kernels");
  const double flops = fast.cost ? fast.cost->flops : 0;
  const bool is_large = flops > kReferenceFlops;
  Truth truth;
  if (!is_large) {
    truth = compute_on_cpu(job, job.inputs, "reference", "reference");
  } else if (device == kCpuDevice && is_tokenwise(entry)) {
    truth = reference_of_some_tokens(job, entry, flops);
  } else if (device == kCpuDevice) {
    truth = compute_on_cpu(job, job.inputs, "reference", "reference");
  } else {
    truth = fast;
  }
  truth.cost = fast.cost;
  return truth;
}

Json check_json(const spec::Entry& entry, const Results& got, const Truth& truth) {
  Json json{{"against", truth.by}, {"passed", true}, {"error", 0.0}, {"tolerance", 0.0}};
  for (int i = 0; i < got.size(); ++i) {
    if (!got[i].defined()) continue;
    const Tensor part =
        truth.first_token < 0 ? got[i] : got[i].narrow(0, truth.first_token, truth.num_tokens);
    const Comparison each =
        compare(part, truth.results[i], truth.specified[static_cast<size_t>(i)], std::nullopt);
    if (each.error >= json["error"].get<double>()) {
      json["error"] = each.error;
      json["tolerance"] = each.tolerance;
    }
    if (each.fault.empty()) continue;
    json["passed"] = false;
    json["fault"] = fmt::format("{}: {}", entry.outputs()[static_cast<size_t>(i)].name, each.fault);
  }
  return json;
}

/// Of the inputs, what every set shares: weights.
std::vector<Tensor> shared_inputs(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> shared(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (size_in_bytes(inputs[i]) >= kSharedBytes) shared[i] = inputs[i];
  }
  return shared;
}

/// As many sets as have their turn within the time and fit in memory, but two.
size_t num_sets(const std::vector<Tensor>& inputs, double call_us, double seconds) {
  double own_bytes = 1;
  for (const Tensor& input : inputs) {
    if (size_in_bytes(input) < kSharedBytes) own_bytes += static_cast<double>(size_in_bytes(input));
  }
  const double fitting = std::min(kSetsBytes / own_bytes, seconds * 1e6 / std::max(call_us, 1.0));
  return static_cast<size_t>(std::clamp(fitting, 2.0, kMaxSets));
}

/// Adds sets of inputs to the first, which is on the device already.
void add_sets(const Job& job, const std::shared_ptr<const spec::Entry>& entry, Device device,
              size_t count, std::vector<std::vector<Tensor>>& sets) {
  const std::vector<Tensor> shared = shared_inputs(job.inputs);
  while (sets.size() < count) {
    std::vector<Tensor> inputs =
        spec::make_inputs(entry, *job.workload, 1000 + sets.size(), shared);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (shared[i].defined()) inputs[i] = Tensor();
    }
    inputs = place(inputs, *entry, device);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (shared[i].defined()) inputs[i] = sets[0][i];
    }
    sets.push_back(std::move(inputs));
  }
}

/// Host time of a call until its results are on the host.
double whole_call_us(const Op& op, const std::vector<Tensor>& inputs) {
  const auto start = std::chrono::steady_clock::now();
  to_host(op.call({inputs, {}}));
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

/// "gate_up: grouped_gemm/sm90_weights_on_m tile_rows=128, … (table)" of each kernel that ran.
void list_kernels(const CallRecord& record, const std::string& stage, Json& list) {
  for (const KernelUse& use : record.kernels()) {
    const Params config = use.entry->kernel->config();
    list.push_back(fmt::format(
        "{}{}/{}{}", stage.empty() ? "" : stage + ": ", use.interface, use.entry->implementation,
        config.size() == 0 ? ""
                           : fmt::format(" {} ({})", to_string(config),
                                         config_origin_name(use.entry->kernel->config_origin()))));
  }
  for (const std::string& name : record.stage_names()) {
    for (const RecordPtr& staged : record.stages(name)) list_kernels(*staged, name, list);
  }
}

void set_floor(Json& row, const spec::Cost& cost, const perf::DeviceProfile& profile) {
  const double bytes_us = cost.bytes / profile.gbps(cost.bytes) * 1e-3;
  const double flops_us = cost.flops / profile.peak_gflops * 1e-3;
  row["flops"] = cost.flops;
  row["bytes"] = cost.bytes;
  row["floor_us"] = std::max(bytes_us, flops_us);
  row["bound"] = flops_us > bytes_us ? "flops" : "bytes";
  const double best =
      std::min(row["single_us"].get<double>(), row["back_to_back_us"].get<double>());
  row["share"] = std::max(bytes_us, flops_us) / best;
}

/// Writes the metadata inputs of every set as "0.topk_ids", …; tells the file.
void write_metadata(const spec::Entry& entry, const std::vector<std::vector<Tensor>>& sets,
                    const BenchOptions& options, Json& row) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (size_t set = 0; set < sets.size(); ++set) {
    for (size_t i = 0; i < sets[set].size(); ++i) {
      const spec::TensorDecl& decl = entry.inputs()[i];
      if (!decl.metadata || !sets[set][i].defined()) continue;
      tensors.emplace_back(fmt::format("{}.{}", set, decl.name), cuda::to_host(sets[set][i]));
    }
  }
  if (tensors.empty()) return;
  std::string name = row["name"];
  std::replace(name.begin(), name.end(), '/', '_');
  const std::string path = fmt::format("{}/{}.safetensors", options.metadata_folder, name);
  write_safetensors(path, tensors, {{"op", entry.name()}});
  row["metadata_file"] = path;
}

Json shapes_json(const spec::Entry& entry, const std::vector<Tensor>& inputs) {
  Json json;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    const Shape& shape = inputs[i].shape();
    json[entry.inputs()[i].name] = std::vector<int64_t>(shape.begin(), shape.end());
  }
  return json;
}

/// Packed copies of experts' weights, for an op that takes some.
std::vector<PackedExperts> pack_sets(const Job& job, const spec::Entry& entry,
                                     const std::vector<std::vector<Tensor>>& sets) {
  const int gate_up = entry.input_slot("w_gate_up"), down = entry.input_slot("w_down");
  std::vector<PackedExperts> packed;
  if (gate_up < 0 || down < 0) return packed;
  const Value* activation = job.params.find("activation");
  const void* seen = nullptr;  // sets that share weights come one after the other
  for (const std::vector<Tensor>& inputs : sets) {
    const Tensor& w_gate_up = inputs[static_cast<size_t>(gate_up)];
    const Tensor& w_down = inputs[static_cast<size_t>(down)];
    if (w_gate_up.rank() != 3 || w_gate_up.data() == seen) continue;
    seen = w_gate_up.data();
    packed.emplace_back(w_gate_up, w_down,
                        activation == nullptr ? GatedActivation::silu_and_mul
                                              : GatedActivation::from_value(*activation));
  }
  return packed;
}

void measure(const JobOptions& what, const BenchOptions& options, Json& row) {
  const Job job = make_job(what, Contents::kReal);
  const auto entry = spec::entry(what.op);
  row["params"] = to_string(job.params);
  const auto op = job.make_op({.target = what.target, .implementation = what.implementation});
  if (options.tunes) op->request_tune();
  progress(row["name"].get<std::string>() + ": the CPU's results");
  std::optional<Truth> truth;
  if (options.checks) truth = truth_of(job, *entry, options.device);
  progress(row["name"].get<std::string>() + ": timing");
  std::vector<std::vector<Tensor>> sets = {place(job.inputs, *entry, options.device)};
  row["shapes"] = shapes_json(*entry, job.inputs);
  const Results got = to_host(op->call({sets[0], {}}));
  if (truth) row["check"] = check_json(*entry, got, *truth);
  const double call_us = whole_call_us(*op, sets[0]);
  add_sets(job, entry, options.device, num_sets(job.inputs, call_us, options.seconds), sets);
  if (!options.metadata_folder.empty()) write_metadata(*entry, sets, options, row);
  std::vector<PackedExperts> packed;
  if (options.packs) packed = pack_sets(job, *entry, sets);
  row["packed_bytes"] = PackedExperts::process_bytes();
  row["kernels"] = Json::array();
  list_kernels(*op->last_call(), "", row["kernels"]);
  perf::Calls calls;
  for (const std::vector<Tensor>& inputs : sets) {
    calls.emplace_back([&op, &inputs] { op->call({inputs, {}}); });
  }
  const perf::CallTimes times =
      perf::time_calls(options.device, calls, options.seconds * 1e6, options.rest_ms * 1e3);
  row["single_us"] = times.single;
  row["single_spread_us"] = times.single_spread;
  row["back_to_back_us"] = times.back_to_back;
  if (options.device.type == DeviceType::kCUDA) row["host_us"] = times.host;
  row["samples"] = times.count;
  row["input_sets"] = sets.size();
  std::optional<spec::Cost> cost = truth ? truth->cost : std::nullopt;
  if (!cost && options.device == kCpuDevice) cost = op->eval_roofline();
  if (!cost) return;
  const perf::DeviceProfile profile =
      options.profile ? *options.profile : perf::profile_for(device_facts(options.device));
  set_floor(row, *cost, profile);
}

}  // namespace

Json bench_row(const std::string& name, const JobOptions& what, const BenchOptions& options) {
  Json row{{"name", name}, {"op", what.op}, {"workload", what.workload}};
  row["sizes"] = what.sizes;
  row["device"] = to_string(options.device);
  try {
    measure(what, options, row);
  } catch (const Error& error) {
    row["error"] = fmt::format("{}: {}", error_kind_name(error.kind()), error.what());
  }
  clear_progress();
  return row;
}

}  // namespace tileops::tools
