// SPDX-License-Identifier: Apache-2.0
// Job: an op and the tensors of one call, as a command line names them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/safetensors.h"
#include "tileops/op/op.h"
#include "tileops/spec/workload.h"

namespace CLI {
class App;
}

namespace tileops::tools {

struct JobOptions {
  std::string op;
  std::string workload;    // label or case id
  std::string input;       // a safetensors file
  std::string checkpoint;  // a folder; `layer` is its layer, `hidden` a safetensors file
  int64_t layer = 0;
  std::string hidden;
  std::vector<std::string> params;  // "name=value"
  std::vector<std::string> sizes;   // "T=128": other values of a workload's indices
  std::string target;
  std::string implementation;
  uint64_t seed = 0;
};
void add_job_options(CLI::App& command, JobOptions& options);

enum class Contents { kReal, kMeta };

/// What the sum of some outputs should be.
struct ExpectedSum {
  std::vector<std::string> outputs;
  Tensor sum;
};

struct Job {
  const OpClass* op_class = nullptr;
  Params params;
  std::vector<Tensor> inputs;  // in the signature's order, on the CPU
  std::optional<spec::WorkloadCase> workload;
  std::vector<ExpectedSum> expected;  // from the input file
  std::string expected_by;            // who computed them, as the file says
  std::string source;                 // where the inputs are from
  std::optional<double> router_us;    // that a checkpoint's router took for the logits

  std::shared_ptr<Op> make_op(const OpOptions& options) const {
    return op_class->make(params, options);
  }
};

/// Finds the op and makes its parameters and inputs: a workload's (kMeta: facts alone), those of
/// the input file, whose metadata may hold `op` and `params`, a JSON object of texts, or those of a
/// checkpoint's layer.
/// Errors: kValue (unknown op, workload, parameter, tensor; none of the three), kIo.
Job make_job(const JobOptions& options, Contents contents);

/// The workload that the options name, with their parameters and sizes.
/// Errors: kValue (unknown workload, parameter or index; a value of another kind).
spec::WorkloadCase workload_of(const JobOptions& options, const spec::Entry& entry);

/// Adds --device, cpu unless given.
void add_device_option(CLI::App& command, std::string& device);
/// The inputs where a call on the device wants them; those that the spec puts on the CPU stay.
/// Errors: kDevice, kOutOfMemory.
std::vector<Tensor> place(const std::vector<Tensor>& inputs, const spec::Entry& entry,
                          Device device);
/// Results on the CPU, absent ones absent.
Results to_host(const Results& results);

/// Takes a tensor named expected.<output>. Errors: kValue, saying that `others` may also be there.
void read_expected_output(const SafetensorsFile& file, const std::string& tensor,
                          std::string_view others, const spec::Entry& entry, Job& job);
/// Who computed what a file expects, by its metadata.
std::string expected_by(const SafetensorsFile& file);

}  // namespace tileops::tools
