// SPDX-License-Identifier: Apache-2.0
// Job: an op and the tensors of one call, as a command line names them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tileops/op/op.h"

namespace CLI {
class App;
}

namespace tileops::tools {

struct JobOptions {
  std::string op;
  std::string workload;             // label or case id
  std::string input;                // a safetensors file
  std::vector<std::string> params;  // "name=value"
  std::string target;
  std::string implementation;
  uint64_t seed = 0;
};
void add_job_options(CLI::App& command, JobOptions& options);

enum class Contents { kReal, kMeta };

struct Job {
  const OpClass* op_class = nullptr;
  Params params;
  std::vector<Tensor> inputs;                            // in the signature's order
  std::vector<std::pair<std::string, Tensor>> expected;  // output -> tensor, from the input file
  std::string expected_by;                               // who computed them, as the file says
  std::string source;                                    // where the inputs are from

  std::shared_ptr<Op> make_op(const OpOptions& options) const {
    return op_class->make(params, options);
  }
};

/// Finds the op and makes its parameters and inputs: a workload's (kMeta: facts alone), or those of
/// the input file, whose metadata may hold `op` and `params`, a JSON object of texts.
/// Errors: kValue (unknown op, workload, parameter, tensor; neither workload nor file), kIo.
Job make_job(const JobOptions& options, Contents contents);

}  // namespace tileops::tools
