// SPDX-License-Identifier: Apache-2.0
// tileops_build_report [FILTER]: compiles the registered programs whose names hold FILTER, prints
// each kernel's resources, and fails on what may not ship (see build_report.h).
// tileops_build_report --root DIR --source FILE --kernel EXPRESSION... [--wgmma]: the same of one
// file of a source tree, while it is being written.
// Exit codes: 0 clean, 1 faults or a failed build, 2 usage, 77 no NVRTC.
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/embedded.h"
#include "tileops/cuda/build_report.h"
#include "tileops/cuda/nvrtc.h"
#include "tileops/cuda/program.h"

namespace tileops::cuda {
namespace {

constexpr int kSkipped = 77;

struct Arguments {
  std::string filter, root;
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
      arguments.filter = word;
    }
  }
  if (arguments.file.kernels.empty() != arguments.file.source.empty()) {
    throw std::invalid_argument("--source and --kernel go together");
  }
  return arguments;
}

/// Whether the program may ship; prints its report.
bool report(const ProgramSpec& spec, std::span<const EmbeddedFile> headers) {
  try {
    const BuildReport found = report_build(spec, headers);
    std::fputs(to_string(spec, found).c_str(), stdout);
    return found.faults.empty();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return false;
  }
}

int run(const Arguments& arguments) {
  if (const auto reason = why_nvrtc_unavailable()) {
    std::fprintf(stderr, "%s\n", reason->c_str());
    return kSkipped;
  }
  if (!arguments.file.source.empty()) {
    ProgramSpec spec = arguments.file;
    if (!arguments.root.empty()) spec.options = {"--include-path=" + arguments.root};
    return report(spec, {}) ? 0 : 1;
  }
  bool clean = true;
  for (const ProgramSpec& spec : registered_programs()) {
    if (spec.name.find(arguments.filter) == spec.name.npos) continue;
    clean = report(spec, embedded::device_files()) && clean;
  }
  return clean ? 0 : 1;
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
