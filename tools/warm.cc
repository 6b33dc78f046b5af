// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "tileops/core/cache_folder.h"
#include "tileops/core/check.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/nvrtc.h"
#include "tileops/op/explain.h"
#include "tileops/spec/registry.h"
#include "tools/command.h"
#include "tools/job.h"
#include "tools/json_text.h"
#include "tools/output.h"
#include "tools/stated_device.h"

namespace tileops::tools {
namespace {

struct WarmOptions {
  std::vector<std::string> ops;
  std::string arch = "sm_90a";
  int threads = 0;
};

/// Adds what the rows of an op would launch. A row that nothing serves on the device has nothing to
/// build.
void add_programs(const std::string& op, const DeviceFacts& device,
                  std::vector<cuda::ProgramSpec>& programs) {
  const auto entry = spec::entry(op);
  const auto add = [&](const cuda::ProgramSpec& program) {
    if (std::find(programs.begin(), programs.end(), program) == programs.end()) {
      programs.push_back(program);
    }
  };
  for (const spec::WorkloadCase& which : spec::workload_cases(*entry)) {
    progress("looking for the kernels of " + op + "/" + which.id);
    const auto instance = op_class(op).make(which.params, {.target = std::string(kBuiltinTarget)});
    const std::vector<Tensor> inputs = spec::make_meta_inputs(entry, which);
    try {
      for (const auto& kernel : kernels_for_call(*instance, {inputs, {}}, device)) {
        kernel->list_programs(add);
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kOpNotAvailable) throw;
    }
  }
}

std::vector<cuda::ProgramSpec> programs_of(const WarmOptions& options) {
  const DeviceFacts device = facts_of({.device = "cuda", .archs = {options.arch}});
  std::vector<cuda::ProgramSpec> programs;
  const std::vector<std::string> ops = options.ops.empty() ? op_class_names() : options.ops;
  for (const std::string& op : ops) add_programs(op, device, programs);
  clear_progress();
  return programs;
}

int warm(const Common& common, const WarmOptions& options) {
  if (const auto reason = cuda::why_nvrtc_unavailable()) raise(ErrorKind::kBuild, "{}", *reason);
  const std::vector<cuda::ProgramSpec> programs = programs_of(options);
  TILEOPS_CHECK(ErrorKind::kValue, !programs.empty(),
                "no workload row of {} launches a program on {}",
                options.ops.empty() ? "any op" : fmt::format("{}", fmt::join(options.ops, ", ")),
                options.arch);
  const int threads =
      options.threads > 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
  const auto start = std::chrono::steady_clock::now();
  Json list = Json::array();
  int num_built = 0;
  const auto tell = [&](const cuda::ProgramSpec& program, bool built) {
    num_built += built ? 1 : 0;
    list.push_back({{"program", program.name}, {"built", built}});
    clear_progress();
    if (!common.json) print(fmt::format("{} {}\n", built ? "built  " : "on disk", program.name));
    progress(fmt::format("{} of {}", list.size(), programs.size()));
  };
  cuda::kernel_cache().warm(programs, options.arch, threads, tell);
  clear_progress();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const std::string folder = cache_folder();
  if (common.json) {
    print(Json{{"arch", options.arch},
               {"nvrtc", cuda::nvrtc_version()},
               {"folder", folder},
               {"seconds", took.count()},
               {"programs", std::move(list)}}
              .dump(2) +
          "\n");
    return kSuccess;
  }
  print(fmt::format("{} programs for {}: {} built in {:.1f} s, {} were there; {}\n",
                    programs.size(), options.arch, num_built, took.count(),
                    static_cast<int>(programs.size()) - num_built,
                    folder.empty() ? "no cache folder: nothing is kept" : folder + "/kernels"));
  return kSuccess;
}

}  // namespace

void add_warm(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<WarmOptions>();
  CLI::App& command =
      add_command(app, chosen, "warm",
                  "Build ahead what the workload rows of ops launch on a GPU; needs NVRTC, no GPU",
                  [&chosen, options] { return warm(chosen.common, *options); });
  command.add_option("ops", options->ops, "Names of ops; all, where none is given")
      ->type_name("OP");
  command.add_option("--device", options->arch, "The architecture to build for")
      ->type_name("ARCH")
      ->check(CLI::IsMember({"sm_90a"}));
  command.add_option("--threads", options->threads, "As many as the machine has, unless given")
      ->check(CLI::Range(1, 1024));
}

}  // namespace tileops::tools
