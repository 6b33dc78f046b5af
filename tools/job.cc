// SPDX-License-Identifier: Apache-2.0
#include "tools/job.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tileops/core/check.h"
#include "tileops/core/safetensors.h"
#include "tileops/cuda/copy.h"
#include "tileops/spec/param_text.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"
#include "tools/checkpoint_job.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

constexpr std::string_view kExpectedPrefix = "expected.";

std::string names_text(std::span<const spec::TensorDecl> decls) {
  std::vector<std::string_view> names;
  for (const spec::TensorDecl& decl : decls) names.push_back(decl.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void set_given_params(const spec::Entry& entry, const std::vector<std::string>& given,
                      Params& params) {
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    TILEOPS_CHECK(ErrorKind::kValue, equals != std::string::npos && equals > 0,
                  "--param {}: it is written name=value", text);
    const std::string name = text.substr(0, equals);
    params.set(name, spec::parse_param(entry, name, std::string_view(text).substr(equals + 1)));
  }
}

void read_file_params(const SafetensorsFile& file, const spec::Entry& entry, Params& params) {
  const auto it = file.metadata().find("params");
  if (it == file.metadata().end()) return;
  const auto json = nlohmann::ordered_json::parse(it->second, nullptr, /*allow_exceptions=*/false);
  TILEOPS_CHECK(ErrorKind::kIo, json.is_object(),
                "{}: metadata params: a JSON object of texts is needed", file.path());
  for (const auto& [name, value] : json.items()) {
    TILEOPS_CHECK(ErrorKind::kIo, value.is_string(),
                  "{}: metadata params: {} must be a text, got {}", file.path(), name,
                  value.dump());
    params.set(name, spec::parse_param(entry, name, value.get<std::string>()));
  }
}

void check_op_of_file(const SafetensorsFile& file, const spec::Entry& entry) {
  const auto it = file.metadata().find("op");
  if (it == file.metadata().end()) return;
  TILEOPS_CHECK(ErrorKind::kValue, it->second == entry.name(),
                "{}: it holds inputs of {}, not of {}", file.path(), it->second, entry.name());
}

void read_tensors(const SafetensorsFile& file, const spec::Entry& entry, Job& job) {
  job.inputs.resize(entry.inputs().size());
  for (const std::string& name : file.names()) {
    const int input = entry.input_slot(name);
    if (input >= 0) {
      job.inputs[static_cast<size_t>(input)] = file.tensor(name);
      continue;
    }
    read_expected_output(file, name, fmt::format("input ({})", names_text(entry.inputs())), entry,
                         job);
  }
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    const spec::TensorDecl& decl = entry.inputs()[i];
    TILEOPS_CHECK(ErrorKind::kValue, job.inputs[i].defined() || decl.optional,
                  "{}: tensor {}, an input of {}, is missing; there are: {}", file.path(),
                  decl.name, entry.name(), fmt::join(file.names(), ", "));
  }
}

void read_input_file(const JobOptions& options, const spec::Entry& entry, Job& job) {
  const SafetensorsFile file = SafetensorsFile::open(options.input);
  check_op_of_file(file, entry);
  read_file_params(file, entry, job.params);
  set_given_params(entry, options.params, job.params);
  read_tensors(file, entry, job);
  job.expected_by = expected_by(file);
  job.source = options.input;
}

/// "T=128" or, for an argument of the generators, "routing=skewed".
void set_size(const std::string& text, spec::WorkloadCase& which) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string name = text.substr(0, equals);
  const std::string value = text.substr(std::min(equals + 1, text.size()));
  Params& values = which.indices.find(name) != nullptr ? which.indices : which.args;
  const Value* former = values.find(name);
  TILEOPS_CHECK(ErrorKind::kValue, former != nullptr,
                "--size {}: workload {} has no {}; it has: {}, {}", text, which.label, name,
                to_string(which.indices), to_string(which.args));
  if (former->as_string() != nullptr) {
    values.set(name, value);
  } else {
    int64_t size = 0;
    const char* const end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, size);
    TILEOPS_CHECK(
        ErrorKind::kValue,
        former->as_int() != nullptr && parsed.ec == std::errc() && parsed.ptr == end && size >= 0,
        "--size {}: it is written name=number, as in T=128", text);
    values.set(name, size);
  }
  which.id += "/" + text;
}

void make_workload(const JobOptions& options, const std::shared_ptr<const spec::Entry>& entry,
                   Contents contents, Job& job) {
  const spec::WorkloadCase which = workload_of(options, *entry);
  job.params = which.params;
  job.workload = which;
  job.source = fmt::format("workload {}, seed {}", which.id, options.seed);
  if (contents == Contents::kMeta) {
    job.inputs = spec::make_meta_inputs(entry, which);
    return;
  }
  progress("making the inputs of " + job.source);
  job.inputs = spec::make_inputs(entry, which, options.seed);
  clear_progress();
}

void add_checkpoint_options(CLI::App& command, JobOptions& options) {
  CLI::Option* checkpoint =
      command
          .add_option("--checkpoint", options.checkpoint,
                      "A Hugging Face checkpoint: Mixtral, Qwen3-MoE, DeepSeek-V3 or GPT-OSS")
          ->type_name("DIR")
          ->excludes("--workload")
          ->excludes("--input");
  CLI::Option* layer = command.add_option("--layer", options.layer, "Which layer of it");
  CLI::Option* hidden =
      command
          .add_option("--hidden", options.hidden,
                      "A safetensors file with the layer's `hidden` states, perhaps `expected`")
          ->type_name("FILE");
  checkpoint->needs(layer)->needs(hidden);
  layer->needs(checkpoint);
  hidden->needs(checkpoint);
}

}  // namespace

void read_expected_output(const SafetensorsFile& file, const std::string& tensor,
                          std::string_view others, const spec::Entry& entry, Job& job) {
  const bool is_expected = tensor.starts_with(kExpectedPrefix);
  const std::string output = is_expected ? tensor.substr(kExpectedPrefix.size()) : "";
  TILEOPS_CHECK(ErrorKind::kValue, is_expected && entry.output_slot(output) >= 0,
                "{}: tensor {} is no {} nor expected.<output> ({}) of {}", file.path(), tensor,
                others, names_text(entry.outputs()), entry.name());
  job.expected.push_back({{output}, file.tensor(tensor)});
}

spec::WorkloadCase workload_of(const JobOptions& options, const spec::Entry& entry) {
  spec::WorkloadCase which = spec::workload_case(entry, options.workload);
  set_given_params(entry, options.params, which.params);
  for (const std::string& text : options.sizes) set_size(text, which);
  return which;
}

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda or cuda:N")->type_name("DEVICE");
}

std::vector<Tensor> place(const std::vector<Tensor>& inputs, const spec::Entry& entry,
                          Device device) {
  if (device == kCpuDevice) return inputs;
  std::vector<Tensor> placed;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool stays = !inputs[i].defined() || entry.inputs()[i].on_cpu;
    placed.push_back(stays ? inputs[i] : cuda::to_device(inputs[i], device));
  }
  return placed;
}

Results to_host(const Results& results) {
  Results copies;
  for (int i = 0; i < results.size(); ++i) {
    copies.push_back(results[i].defined() ? cuda::to_host(results[i]) : Tensor());
  }
  return copies;
}

std::string expected_by(const SafetensorsFile& file) {
  const auto by = file.metadata().find("expected_by");
  return by == file.metadata().end() ? "the file" : by->second;
}

void add_job_options(CLI::App& command, JobOptions& options) {
  command.add_option("op", options.op, "Name of the op")->required()->type_name("OP");
  CLI::Option* workload =
      command.add_option("--workload", options.workload, "A workload of the op's spec")
          ->type_name("LABEL");
  command
      .add_option("--input", options.input,
                  "A safetensors file with tensors named as the op's inputs")
      ->type_name("FILE")
      ->excludes(workload);
  add_checkpoint_options(command, options);
  command
      .add_option("--param", options.params,
                  "A parameter, as in layout=masked{max_m: 128} (repeatable)")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);
  command
      .add_option("--size", options.sizes, "Another size of the workload, as in T=128 (repeatable)")
      ->type_name("NAME=SIZE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->needs(workload);
  command.add_option("--target", options.target, "The target that shall serve")->type_name("T");
  command
      .add_option("--implementation", options.implementation,
                  "The implementation that alone may serve")
      ->type_name("KEY");
  command.add_option("--seed", options.seed, "Seed of a workload's tensors");
}

Job make_job(const JobOptions& options, Contents contents) {
  const auto entry = spec::entry(options.op);
  Job job;
  job.op_class = &op_class(options.op);
  if (!options.input.empty()) {
    read_input_file(options, *entry, job);
  } else if (!options.checkpoint.empty()) {
    set_given_params(*entry, options.params, job.params);
    read_checkpoint_job(options, *entry, job);
  } else {
    TILEOPS_CHECK(ErrorKind::kValue, !options.workload.empty(),
                  "{}: give --workload LABEL or --input FILE (for a layer also --checkpoint DIR); "
                  "workloads: {}",
                  options.op, fmt::join(entry->workload_labels(), ", "));
    make_workload(options, entry, contents, job);
  }
  return job;
}

}  // namespace tileops::tools
