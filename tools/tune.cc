// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "tileops/core/check.h"
#include "tileops/perf/autotuner.h"
#include "tileops/spec/registry.h"
#include "tools/command.h"
#include "tools/job.h"
#include "tools/json_text.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

struct TuneOptions {
  std::string op;
  std::vector<std::string> workloads;
  std::vector<std::string> sizes;
  std::string device = "cpu";
  bool again = false;
};

/// A kernel's choice, beside the default's time where a table has it.
Json choice_json(const std::string& stage, const KernelUse& use) {
  const Kernel& kernel = *use.entry->kernel;
  Json json{{"stage", stage},
            {"kernel", fmt::format("{}/{}", use.interface, use.entry->implementation)},
            {"config", to_string(kernel.config())},
            {"origin", config_origin_name(kernel.config_origin())}};
  return json;
}

void list_choices(const CallRecord& record, const std::string& stage, Json& list) {
  for (const KernelUse& use : record.kernels()) {
    if (use.entry->kernel->tunable()) list.push_back(choice_json(stage, use));
  }
  for (const std::string& name : record.stage_names()) {
    for (const RecordPtr& staged : record.stages(name)) list_choices(*staged, name, list);
  }
}

Json tune_row(const TuneOptions& options, const std::string& workload, Device device) {
  JobOptions what;
  what.op = options.op;
  what.workload = workload;
  what.sizes = options.sizes;
  const Job job = make_job(what, Contents::kReal);
  const auto op = job.make_op({.target = std::string(kBuiltinTarget)});
  op->request_tune();
  progress(fmt::format("tuning {}/{}", options.op, job.workload->id));
  op->call({place(job.inputs, op->entry(), device), {}});
  clear_progress();
  Json choices = Json::array();
  list_choices(*op->last_call(), "", choices);
  return {{"op", options.op}, {"workload", job.workload->id}, {"kernels", std::move(choices)}};
}

std::string row_text(const Json& row) {
  std::string text =
      fmt::format("{}/{}\n", row["op"].get<std::string>(), row["workload"].get<std::string>());
  if (row["kernels"].empty()) text += "  nothing to tune: one configuration serves\n";
  for (const Json& choice : row["kernels"]) {
    const std::string stage = choice["stage"];
    text += fmt::format("  {}{}: {} ({})\n", stage.empty() ? "" : stage + " ",
                        choice["kernel"].get<std::string>(), choice["config"].get<std::string>(),
                        choice["origin"].get<std::string>());
  }
  return text;
}

int tune(const Common& common, const TuneOptions& options) {
  const Device device = parse_device(options.device);
  const std::string path = perf::tuning_table_path(perf::tuning_device(device_facts(device).name));
  const auto entry = spec::entry(options.op);
  TILEOPS_CHECK(ErrorKind::kValue, !options.workloads.empty(),
                "{}: give --workload LABEL (repeatable); workloads: {}", options.op,
                fmt::join(entry->workload_labels(), ", "));
  std::optional<perf::MeasureAgain> again;
  if (options.again) again.emplace();
  Json rows = Json::array();
  for (const std::string& workload : options.workloads) {
    rows.push_back(tune_row(options, workload, device));
    if (!common.json) print(row_text(rows.back()));
  }
  if (common.json) {
    print(Json{{"table", path}, {"rows", std::move(rows)}}.dump(2) + "\n");
  } else {
    print(fmt::format("table {}\n", path.empty() ? "none: there is no cache folder" : path));
  }
  return kSuccess;
}

}  // namespace

void add_tune(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<TuneOptions>();
  CLI::App& command =
      add_command(app, chosen, "tune", "Measure an op's configurations and keep the best",
                  [&chosen, options] { return tune(chosen.common, *options); });
  command.add_option("op", options->op, "Name of the op")->required()->type_name("OP");
  command.add_option("--workload", options->workloads, "A workload of the op's spec (repeatable)")
      ->type_name("LABEL")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--size", options->sizes, "Another size, as in T=128 (repeatable)")
      ->type_name("NAME=SIZE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  add_device_option(command, options->device);
  command.add_flag("--again", options->again, "Measure also what a table holds, and replace it");
}

}  // namespace tileops::tools
