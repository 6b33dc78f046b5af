// SPDX-License-Identifier: Apache-2.0
#include "tileops/op/explain.h"

#include <CLI/CLI.hpp>

#include "tools/command.h"
#include "tools/job.h"
#include "tools/json_text.h"
#include "tools/output.h"
#include "tools/stated_device.h"

namespace tileops::tools {
namespace {

struct ExplainOptions {
  JobOptions job;
  StatedDevice device;
};

Json json_of(const Explanation& explanation) {
  Json json{{"op", explanation.op}, {"stage", explanation.stage}, {"target", explanation.target}};
  json["choices"] = Json::array();
  for (const InterfaceChoice& choice : explanation.choices) {
    Json candidates = Json::array();
    for (const Candidate& candidate : choice.candidates) {
      candidates.push_back(
          {{"key", candidate.key}, {"chosen", candidate.chosen}, {"reason", candidate.reason}});
      if (!candidate.config.empty()) candidates.back()["config"] = candidate.config;
    }
    json["choices"].push_back(
        {{"interface", choice.interface}, {"candidates", std::move(candidates)}});
  }
  json["stages"] = Json::array();
  for (const Explanation& stage : explanation.stages) json["stages"].push_back(json_of(stage));
  return json;
}

int explain(const Common& common, const ExplainOptions& options) {
  const DeviceFacts device = facts_of(options.device);
  const Job job = make_job(options.job, Contents::kMeta);
  const auto op =
      job.make_op({.target = options.job.target, .implementation = options.job.implementation});
  const Explanation explanation = explain_call(*op, {job.inputs, {}}, device);
  print(common.json ? json_of(explanation).dump(2) + "\n" : explanation.text());
  return kSuccess;
}

}  // namespace

void add_explain(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App& command =
      add_command(app, chosen, "explain",
                  "Which kernel would serve each stage of a call, and why not the others",
                  [&chosen, options] { return explain(chosen.common, *options); });
  add_job_options(command, options->job);
  add_stated_device(command, options->device);
}

}  // namespace tileops::tools
