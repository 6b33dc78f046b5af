// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "tileops/core/check.h"
#include "tileops/core/safetensors.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/workspace.h"
#include "tileops/perf/report.h"
#include "tools/command.h"
#include "tools/compare.h"
#include "tools/job.h"
#include "tools/json_text.h"
#include "tools/memory.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

constexpr const char* kReference = "reference";

struct RunOptions {
  JobOptions job;
  std::string output;
  std::string profile;
  std::string device = "cpu";
  int repeat = 5;
  bool no_reference = false;
  bool pack = false;
  double tolerance = -1;
};

/// The calls of a job: the last one's results, the record of median time.
struct Calls {
  Results results;
  RecordPtr median;
  std::vector<double> times_us;  // in call order
  int64_t peak_bytes = 0;        // of the first call's own memory, its outputs included
};

/// What the reference computes, and which elements it wrote.
struct ReferenceRun {
  std::vector<Tensor> results;
  std::vector<Specified> specified;
  std::shared_ptr<Op> op;  // that computed them; null where skipped
  std::string skipped;     // why there is none
};

struct RunResult {
  PackedInputs packed;
  Calls calls;
  perf::DeviceProfile profile;
  perf::Report report;
  ReferenceRun reference;
  std::vector<Comparison> checks;
  std::vector<std::string> checksums;  // by output
};

/// On a GPU each launch is waited for, so that the host's clock tells the stages' times.
Calls call_repeatedly(const Op& op, const std::vector<Tensor>& inputs, Device device, int repeat) {
  Calls calls;
  std::vector<RecordPtr> records;
  set_call_timing(true);
  if (device.type == DeviceType::kCUDA) cuda::set_synchronous_launches(true);
  for (int i = 0; i < repeat; ++i) {
    progress(fmt::format("{}: call {} of {}", op.name(), i + 1, repeat));
    if (i == 0) {
      const CountedAllocations counted;
      calls.results = op.call({inputs, {}});
      calls.peak_bytes = counted.peak_bytes();
    } else {
      calls.results = op.call({inputs, {}});
    }
    records.push_back(op.last_call());
    calls.times_us.push_back(records.back()->elapsed_us().value_or(0));
  }
  set_call_timing(false);
  clear_progress();
  calls.results = to_host(calls.results);
  const auto middle = records.begin() + static_cast<ptrdiff_t>(records.size() / 2);
  std::nth_element(
      records.begin(), middle, records.end(),
      [](const RecordPtr& a, const RecordPtr& b) { return a->elapsed_us() < b->elapsed_us(); });
  calls.median = *middle;
  return calls;
}

ReferenceRun run_reference(const Op& op, const Job& job, const RunOptions& options) {
  ReferenceRun run;
  run.specified.resize(op.entry().outputs().size());
  if (options.no_reference) run.skipped = "not asked for";
  if (options.job.implementation == kReference) run.skipped = "it is what ran";
  if (!run.skipped.empty()) return run;
  progress(op.name() + ": reference");
  try {
    const auto reference =
        job.make_op({.target = std::string(kBuiltinTarget), .implementation = kReference});
    const PoisonedAllocations poisoned;
    const Results results = reference->call({job.inputs, {}});
    run.op = reference;
    run.results.assign(results.begin(), results.end());
    for (size_t i = 0; i < run.results.size(); ++i) {
      if (run.results[i].defined()) run.specified[i] = written(run.results[i]);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kOpNotAvailable) throw;
    run.skipped = error.what();
  }
  clear_progress();
  return run;
}

/// An output, or the sum of several that are there, in their dtype.
Tensor sum_of(const Op& op, const Results& results, const std::vector<std::string>& outputs) {
  const Tensor first = results[op.entry().output_slot(outputs[0])];
  if (outputs.size() == 1) return first;
  const Tensor sum = first.to(DType::kF64);
  for (size_t output = 1; output < outputs.size(); ++output) {
    const Tensor other = results[op.entry().output_slot(outputs[output])].to(DType::kF64);
    for (int64_t i = 0; i < sum.num_elements(); ++i)
      sum.data_as<double>()[i] += other.data_as<double>()[i];
  }
  return sum.to(first.dtype());
}

std::vector<Comparison> check_results(const Op& op, const Job& job, const RunOptions& options,
                                      const Calls& calls, const ReferenceRun& reference) {
  const auto tolerance = options.tolerance < 0 ? std::nullopt : std::optional(options.tolerance);
  std::vector<Comparison> checks;
  const auto check = [&](const std::vector<std::string>& outputs, const Tensor& want,
                         const std::string& against) {
    const Tensor got = sum_of(op, calls.results, outputs);
    if (!got.defined() || !want.defined()) return;
    const auto slot = static_cast<size_t>(op.entry().output_slot(outputs[0]));
    const Specified all;
    checks.push_back(
        compare(got, want, outputs.size() == 1 ? reference.specified[slot] : all, tolerance));
    checks.back().output = fmt::format("{}", fmt::join(outputs, " + "));
    checks.back().against = against;
  };
  for (const auto& [outputs, sum] : job.expected) check(outputs, sum, job.expected_by);
  for (size_t i = 0; i < reference.results.size(); ++i) {
    check({op.entry().outputs()[i].name}, reference.results[i], kReference);
  }
  return checks;
}

perf::DeviceProfile profile_of(const RunOptions& options, Device device) {
  if (!options.profile.empty()) return perf::load_profile(options.profile);
  if (device.type == DeviceType::kCPU && !perf::cpu_profile_is_measured()) {
    progress("measuring the CPU's rates, once");
  }
  perf::DeviceProfile profile = perf::profile_for(device_facts(device));
  clear_progress();
  return profile;
}

void write_output(const RunOptions& options, const Op& op, const Results& results) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (int i = 0; i < results.size(); ++i) {
    if (results[i].defined())
      tensors.emplace_back(op.entry().outputs()[static_cast<size_t>(i)].name, results[i]);
  }
  write_safetensors(options.output, tensors, {{"op", op.name()}});
}

std::string output_name(const Op& op, size_t i) { return op.entry().outputs()[i].name; }

Json run_json(const Op& op, const Job& job, const RunResult& run) {
  Json json{{"op", op.name()}, {"params", to_string(op.params())}, {"source", job.source}};
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    json["inputs"][op.entry().inputs()[i].name] = facts_text(job.inputs[i]);
  }
  json["profile"] = Json::parse(perf::to_json(run.profile));
  if (job.router_us) json["router_logits_us"] = *job.router_us;
  json["times_us"] = run.calls.times_us;
  json["memory"] = {{"call_peak_bytes", run.calls.peak_bytes},
                    {"kept_workspace_bytes", kept_workspace_bytes()},
                    {"packed_bytes", PackedExperts::process_bytes()},
                    {"packing_ms", run.packed.ms}};
  json["report"] = Json::parse(perf::to_json(run.report));
  json["outputs"] = Json::object();
  for (size_t i = 0; i < run.checksums.size(); ++i) {
    json["outputs"][output_name(op, i)] = {
        {"tensor", facts_text(run.calls.results[static_cast<int>(i)])},
        {"checksum", run.checksums[i]}};
  }
  json["checks"] = Json::array();
  for (const Comparison& check : run.checks) {
    json["checks"].push_back({{"output", check.output},
                              {"against", check.against},
                              {"error", check.error},
                              {"tolerance", check.tolerance},
                              {"compared", check.num_compared},
                              {"passed", check.fault.empty()},
                              {"fault", check.fault}});
  }
  json["reference_skipped"] = run.reference.skipped.empty() ? Json() : Json(run.reference.skipped);
  return json;
}

std::string profile_text(const perf::DeviceProfile& profile) {
  return fmt::format("{}{}: read {:.1f} GB/s, peak {:.0f} GFLOP/s{}{}", profile.device,
                     profile.threads > 0 ? fmt::format(", {} threads", profile.threads) : "",
                     profile.read_gbps, profile.peak_gflops,
                     profile.peak_of.empty() ? "" : " (" + profile.peak_of + ")",
                     profile.busy ? "; measured while the machine was busy, not kept" : "");
}

std::string megabytes(int64_t bytes) {
  return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
}

std::string memory_text(const RunResult& run) {
  std::string text =
      fmt::format("memory   {} at most for the first call, {} of it kept for the next",
                  megabytes(run.calls.peak_bytes), megabytes(kept_workspace_bytes()));
  if (run.packed.routed) {
    text += fmt::format("; packed weights {}, made in {:.1f} ms",
                        megabytes(PackedExperts::process_bytes()), run.packed.ms);
  }
  return text + "\n";
}

std::string run_text(const Op& op, const Job& job, const RunResult& run) {
  std::string text = fmt::format("{}({})\n", op.name(), to_string(op.params()));
  text += fmt::format("inputs   from {}\n", job.source);
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    if (!job.inputs[i].defined()) continue;
    text += fmt::format("         {} {}\n", op.entry().inputs()[i].name, facts_text(job.inputs[i]));
  }
  text += fmt::format("device   {}\n", profile_text(run.profile));
  if (job.router_us) text += fmt::format("router   logits in {:.1f} us, once\n", *job.router_us);
  if (run.calls.median->device().type == DeviceType::kCPU) text += memory_text(run);
  const auto& times = run.calls.times_us;
  text += fmt::format(
      "calls    {}: first {:.1f} us, least {:.1f} us; the table is of the one of median time\n",
      times.size(), times.front(), *std::min_element(times.begin(), times.end()));
  text += "\n" + perf::text(run.report) + "\n";
  for (size_t i = 0; i < run.checksums.size(); ++i) {
    text += fmt::format("output   {} {}  {}\n", output_name(op, i),
                        facts_text(run.calls.results[static_cast<int>(i)]), run.checksums[i]);
  }
  for (const Comparison& check : run.checks) {
    text += fmt::format("check    {} against {}: {}\n", check.output, check.against,
                        check.fault.empty()
                            ? fmt::format("ok, relative error {:.2e} <= {:.2e} over {} elements",
                                          check.error, check.tolerance, check.num_compared)
                            : "FAILED, " + check.fault);
  }
  if (!run.reference.skipped.empty()) {
    text += fmt::format("check    {} left out: {}\n", kReference, run.reference.skipped);
  }
  return text;
}

int run(const Common& common, const RunOptions& options) {
  const Job job = make_job(options.job, Contents::kReal);
  const auto op =
      job.make_op({.target = options.job.target, .implementation = options.job.implementation});
  const Device device = parse_device(options.device);
  const std::vector<Tensor> inputs = place(job.inputs, op->entry(), device);
  RunResult run;
  if (options.pack) run.packed = pack_weights(inputs, op->entry(), op->params());
  run.calls = call_repeatedly(*op, inputs, device, options.repeat);
  run.profile = profile_of(options, run.calls.median->device());
  run.report = perf::make_report(*run.calls.median, run.profile);
  run.reference = run_reference(*op, job, options);
  const bool cannot_tell = !run.report.cost && run.report.fault.empty();
  if (cannot_tell && run.reference.op != nullptr) {
    perf::set_cost(run.report, run.reference.op->eval_roofline(), run.profile);
  }
  run.checks = check_results(*op, job, options, run.calls, run.reference);
  for (int i = 0; i < run.calls.results.size(); ++i) {
    const Tensor& result = run.calls.results[i];
    run.checksums.push_back(result.defined()
                                ? checksum(result, run.reference.specified[static_cast<size_t>(i)])
                                : "absent");
  }
  if (!options.output.empty()) write_output(options, *op, run.calls.results);
  print(common.json ? run_json(*op, job, run).dump(2) + "\n" : run_text(*op, job, run));
  const bool passed = std::all_of(run.checks.begin(), run.checks.end(),
                                  [](const Comparison& check) { return check.fault.empty(); });
  return passed ? kSuccess : kCheckFailed;
}

}  // namespace

void add_run(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App& command =
      add_command(app, chosen, "run", "Compute an op, check it, report each stage beside its floor",
                  [&chosen, options] { return run(chosen.common, *options); });
  add_job_options(command, options->job);
  add_device_option(command, options->device);
  command.add_option("--output", options->output, "Write the outputs to a safetensors file")
      ->type_name("FILE");
  command.add_option("--repeat", options->repeat, "Number of calls")
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--profile", options->profile, "The device's rates, stated as JSON")
      ->type_name("FILE");
  command.add_flag("--pack", options->pack, "Pack the experts' weights for the CPU first");
  command.add_flag("--no-reference", options->no_reference, "Do not compare with the reference");
  command.add_option("--tolerance", options->tolerance, "Relative error that passes")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace tileops::tools
