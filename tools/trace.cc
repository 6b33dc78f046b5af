// SPDX-License-Identifier: Apache-2.0
#include "tileops/op/trace.h"

#include <CLI/CLI.hpp>

#include "tools/command.h"
#include "tools/job.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

struct TraceOptions {
  JobOptions job;
  std::string format = "text";
};

int trace_job(const Common& common, const TraceOptions& options) {
  const Job job = make_job(options.job, Contents::kMeta);
  const auto op =
      job.make_op({.target = options.job.target, .implementation = options.job.implementation});
  const Graph graph = trace(*op, {job.inputs, {}});
  if (common.json || options.format == "json")
    print(graph.json() + "\n");
  else
    print(options.format == "dot" ? graph.dot() : graph.text());
  return kSuccess;
}

}  // namespace

void add_trace(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App& command =
      add_command(app, chosen, "trace", "The graph of leaf calls that a call makes",
                  [&chosen, options] { return trace_job(chosen.common, *options); });
  add_job_options(command, options->job);
  command.add_option("--format", options->format, "text, dot or json")
      ->check(CLI::IsMember({"text", "dot", "json"}));
}

}  // namespace tileops::tools
