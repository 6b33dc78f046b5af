// SPDX-License-Identifier: Apache-2.0
#include <fstream>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tileops/core/check.h"
#include "tileops/core/text_file.h"
#include "tileops/op/op_class.h"
#include "tileops/spec/registry.h"
#include "tools/bench_row.h"
#include "tools/bench_table.h"
#include "tools/command.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

struct BenchCommand {
  std::string op = "all";
  std::vector<std::string> workloads;
  std::vector<std::string> sizes;
  std::string rows;  // a file
  std::string device = "cpu";
  std::string profile;
  std::string json;
  std::string html;
  std::string metadata;
  bool no_check = false;
  bool tune = false;
  bool pack = false;
  double seconds = 0.2;
  double rest_ms = 0;
};

struct NamedJob {
  std::string name;
  JobOptions job;
};

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  TILEOPS_CHECK(ErrorKind::kIo, file.good(), "{}: cannot be written", path);
}

Json read_json(const std::string& path, const char* what) {
  Json json = Json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  const bool has_rows = json.is_object() && json.contains("rows") && json["rows"].is_array();
  TILEOPS_CHECK(ErrorKind::kIo, has_rows, "{}: {} is a JSON object with rows", path, what);
  return json;
}

/// Rows of a file: {rows: [{name, op, workload, sizes: ["T=16"], params: ["layout=…"]}]}.
std::vector<NamedJob> jobs_of_file(const std::string& path) {
  std::vector<NamedJob> jobs;
  const Json list = read_json(path, "a list of rows");
  try {
    for (const Json& row : list["rows"]) {
      JobOptions job;
      job.op = row.at("op").get<std::string>();
      job.workload = row.at("workload").get<std::string>();
      job.sizes = row.value("sizes", std::vector<std::string>());
      job.params = row.value("params", std::vector<std::string>());
      jobs.push_back({row.value("name", job.op + "/" + job.workload), std::move(job)});
    }
  } catch (const Json::exception& error) {
    raise(ErrorKind::kIo, "{}: malformed row: {}", path, error.what());
  }
  return jobs;
}

/// The asked workloads, else every row that is no small one.
std::vector<NamedJob> jobs_of_op(const std::string& op, const BenchCommand& command) {
  const auto entry = spec::entry(op);
  std::vector<std::string> labels = command.workloads;
  if (labels.empty()) {
    for (const std::string& label : entry->workload_labels()) {
      if (!label.starts_with("small")) labels.push_back(label);
    }
  }
  std::vector<NamedJob> jobs;
  for (const std::string& label : labels) {
    JobOptions job;
    job.op = op;
    job.workload = label;
    job.sizes = command.sizes;
    workload_of(job, *entry);  // what is wrong is told before anything is measured
    std::string name = op + "/" + label;
    for (const std::string& size : command.sizes) name += "/" + size;
    jobs.push_back({std::move(name), std::move(job)});
  }
  return jobs;
}

std::vector<NamedJob> jobs_of(const BenchCommand& command) {
  if (!command.rows.empty()) return jobs_of_file(command.rows);
  if (command.op != "all") return jobs_of_op(command.op, command);
  TILEOPS_CHECK(ErrorKind::kValue, command.workloads.empty() && command.sizes.empty(),
                "all: --workload and --size name one op's rows; name the op");
  std::vector<NamedJob> jobs;
  for (const std::string& op : op_class_names()) {
    for (NamedJob& job : jobs_of_op(op, command)) jobs.push_back(std::move(job));
  }
  return jobs;
}

int bench(const BenchCommand& command) {
  const Device device = parse_device(command.device);
  const DeviceFacts& facts = device_facts(device);
  BenchOptions options{.device = device,
                       .checks = !command.no_check,
                       .tunes = command.tune,
                       .packs = command.pack,
                       .seconds = command.seconds,
                       .rest_ms = command.rest_ms,
                       .metadata_folder = command.metadata};
  const std::vector<NamedJob> jobs = jobs_of(command);
  progress("measuring the device's rates, once");
  options.profile =
      command.profile.empty() ? perf::profile_for(facts) : perf::load_profile(command.profile);
  clear_progress();
  Json benchmark{{"version", TILEOPS_VERSION},
                 {"device", device == kCpuDevice ? perf::cpu_name() : facts.name},
                 {"profile", Json::parse(perf::to_json(*options.profile))},
                 {"rest_ms", command.rest_ms},
                 {"rows", Json::array()}};
  for (const auto& [name, job] : jobs) benchmark["rows"].push_back(bench_row(name, job, options));
  if (!command.html.empty()) write_text(command.html, bench_html(Json::array({benchmark})));
  if (command.json == "-") {
    print(benchmark.dump(2) + "\n");
  } else {
    if (!command.json.empty()) write_text(command.json, benchmark.dump(2) + "\n");
    print(bench_text(benchmark));
  }
  return bench_passed(benchmark) ? kSuccess : kCheckFailed;
}

struct ReportCommand {
  std::vector<std::string> files;
  std::string html;
};

int report(const Common& common, const ReportCommand& command) {
  Json benchmarks = Json::array();
  for (const std::string& file : command.files) {
    benchmarks.push_back(read_json(file, "a benchmark"));
  }
  if (!command.html.empty()) write_text(command.html, bench_html(benchmarks));
  if (common.json) {
    print(benchmarks.dump(2) + "\n");
  } else if (command.html.empty()) {
    for (const Json& benchmark : benchmarks) print(bench_text(benchmark));
  }
  return std::all_of(benchmarks.begin(), benchmarks.end(), bench_passed) ? kSuccess : kCheckFailed;
}

}  // namespace

void add_bench(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<BenchCommand>();
  CLI::App& command = add_command(
      app, chosen, "bench", "Check and time ops on rows of their specs, beside their floors",
      [options] { return bench(*options); }, JsonOption::kOwn);
  command.add_option("op", options->op, "Name of an op, or all")->type_name("OP");
  CLI::Option* workload = command.add_option(
      "--workload", options->workloads, "A workload of the op (repeatable; all but the small)");
  workload->type_name("LABEL")->expected(1)->take_all()->allow_extra_args(false);
  command.add_option("--size", options->sizes, "Another size, as in T=128 (repeatable)")
      ->type_name("NAME=SIZE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command.add_option("--rows", options->rows, "A file of rows, such as bench/rows/h200.json")
      ->type_name("FILE")
      ->excludes(workload);
  add_device_option(command, options->device);
  command.add_option("--profile", options->profile, "The device's rates, stated as JSON")
      ->type_name("FILE");
  command
      .add_option("--json", options->json, "Write JSON to a file; alone, print it in place of text")
      ->type_name("[FILE]")
      ->expected(0, 1)
      ->default_str("-");
  command.add_option("--html", options->html, "Write a table as one HTML file")->type_name("FILE");
  command
      .add_option("--metadata", options->metadata,
                  "Write each row's metadata inputs to a folder, for peers on the same routing")
      ->type_name("DIR");
  command.add_flag("--no-check", options->no_check, "Time alone");
  command.add_flag("--pack", options->pack, "On a CPU: pack experts' weights ahead");
  command.add_flag("--tune", options->tune, "Tune each op first");
  command.add_option("--seconds", options->seconds, "Of timed calls a row, about")
      ->check(CLI::Range(0.001, 3600.0));
  command
      .add_option("--rest", options->rest_ms,
                  "Time bursts: the device rests so long before each sample (0: the clock settles)")
      ->type_name("MS")
      ->check(CLI::Range(0.0, 1000.0));
}

void add_report(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<ReportCommand>();
  CLI::App& command = add_command(app, chosen, "report", "Benchmarks' JSON files as one table",
                                  [&chosen, options] { return report(chosen.common, *options); });
  command.add_option("files", options->files, "What bench --json wrote")
      ->required()
      ->type_name("FILE");
  command.add_option("--html", options->html, "Write one HTML file")->type_name("FILE");
}

}  // namespace tileops::tools
