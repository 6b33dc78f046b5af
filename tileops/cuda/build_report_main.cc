// SPDX-License-Identifier: Apache-2.0
// tileops_build_report [FILTER...]: compiles the registered programs whose names hold a FILTER
// (all, where none is given), prints each kernel's resources, and fails on what may not ship (see
// build_report.h).
// tileops_build_report --root DIR --source FILE --kernel EXPRESSION... [--wgmma]: the same of one
// file of a source tree, while it is being written.
// Exit codes: 0 clean, 1 faults or a failed build, 2 usage, 77 no NVRTC.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tileops/core/embedded.h"
#include "tileops/cuda/build_report.h"
#include "tileops/cuda/nvrtc.h"
#include "tileops/cuda/program.h"

namespace tileops::cuda {
namespace {

constexpr int kSkipped = 77;

struct Arguments {
  std::vector<std::string> filters;
  std::string root;
  ProgramSpec file;
};

Arguments parse(std::span<char*> words) {
  Arguments arguments;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const auto value = [&]() -> std::string {
      if (++i == words.size()) throw std::invalid_argument(std::string(word) + " needs a value");
      return words[i];
    };
    if (word == "--root") {
      arguments.root = value();
    } else if (word == "--source") {
      arguments.file.name = value();
      arguments.file.source = "#include \"" + arguments.file.name + "\"\n";
    } else if (word == "--kernel") {
      arguments.file.kernels.push_back(value());
    } else if (word == "--wgmma") {
      arguments.file.uses_wgmma = true;
    } else if (word.starts_with("--")) {
      throw std::invalid_argument("unknown option " + std::string(word));
    } else {
      arguments.filters.emplace_back(word);
    }
  }
  if (arguments.file.kernels.empty() != arguments.file.source.empty()) {
    throw std::invalid_argument("--source and --kernel go together");
  }
  return arguments;
}

struct Outcome {
  std::string text;
  bool clean = false;
};

Outcome outcome_of(const ProgramSpec& spec, std::span<const EmbeddedFile> headers) {
  try {
    const BuildReport report = report_build(spec, headers);
    return {to_string(spec, report), report.faults.empty()};
  } catch (const std::exception& error) {
    return {std::string(error.what()) + "\n"};
  }
}

/// Compiles on all processors; prints in the order of the list.
bool report_all(std::span<const ProgramSpec> specs, std::span<const EmbeddedFile> headers) {
  std::vector<Outcome> outcomes(specs.size());
  std::atomic<size_t> next = 0;
  {
    std::vector<std::jthread> threads(std::max(std::thread::hardware_concurrency(), 1U));
    for (std::jthread& thread : threads) {
      thread = std::jthread([&] {
        for (size_t i = next++; i < specs.size(); i = next++) {
          outcomes[i] = outcome_of(specs[i], headers);
        }
      });
    }
  }
  bool clean = true;
  for (const Outcome& outcome : outcomes) {
    std::fputs(outcome.text.c_str(), outcome.clean ? stdout : stderr);
    clean = clean && outcome.clean;
  }
  return clean;
}

bool is_wanted(const Arguments& arguments, const ProgramSpec& spec) {
  const auto holds = [&](const std::string& filter) {
    return spec.name.find(filter) != spec.name.npos;
  };
  return arguments.filters.empty() ||
         std::any_of(arguments.filters.begin(), arguments.filters.end(), holds);
}

int run(const Arguments& arguments) {
  if (const auto reason = why_nvrtc_unavailable()) {
    std::fprintf(stderr, "%s\n", reason->c_str());
    return kSkipped;
  }
  if (!arguments.file.source.empty()) {
    ProgramSpec spec = arguments.file;
    if (!arguments.root.empty()) spec.options = {"--include-path=" + arguments.root};
    return report_all({&spec, 1}, {}) ? 0 : 1;
  }
  std::vector<ProgramSpec> specs = registered_programs();
  std::erase_if(specs, [&](const ProgramSpec& spec) { return !is_wanted(arguments, spec); });
  if (specs.empty()) {
    std::fprintf(stderr, "tileops_build_report: no program's name holds what was asked for\n");
    return 1;
  }
  return report_all(specs, embedded::device_files()) ? 0 : 1;
}

}  // namespace
}  // namespace tileops::cuda

int main(int argc, char** argv) {
  try {
    return tileops::cuda::run(
        tileops::cuda::parse(std::span<char*>(argv, static_cast<size_t>(argc))));
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "tileops_build_report: %s\n", error.what());
    return 2;
  }
}
