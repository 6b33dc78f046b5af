// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/build_report.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "tileops/core/check.h"
#include "tileops/cuda/nvrtc.h"

namespace tileops::cuda {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The number right before `words` ("168 registers"); 0 where they are not there.
int64_t number_before(std::string_view line, std::string_view words) {
  const size_t at = line.find(words);
  if (at == line.npos || at == 0) return 0;
  const size_t start = line.find_last_not_of("0123456789", at - 2);
  const size_t first = start == line.npos ? 0 : start + 1;
  int64_t value = 0;
  std::from_chars(line.data() + first, line.data() + at, value);
  return value;
}

void read_numbers(std::string_view line, KernelResources& kernel) {
  const auto take = [line](auto& field, std::string_view words) {
    if (const int64_t value = number_before(line, words)) {
      field = static_cast<std::remove_reference_t<decltype(field)>>(value);
    }
  };
  take(kernel.num_registers, " registers");
  take(kernel.num_barriers, " barriers");
  take(kernel.static_smem_bytes, " bytes smem");
  take(kernel.stack_bytes, " bytes stack frame");
  take(kernel.spill_store_bytes, " bytes spill stores");
  take(kernel.spill_load_bytes, " bytes spill loads");
}

/// Lines of the log that tell of lost speed, such as wgmma that ptxas serialises.
std::vector<std::string> warnings_of(std::string_view log) {
  constexpr std::array<std::string_view, 3> kSigns = {"Potential Performance Loss", "setmaxnreg",
                                                      "warning"};
  std::vector<std::string> found;
  for (const std::string_view line : lines_of(log)) {
    const bool bad = std::any_of(kSigns.begin(), kSigns.end(), [line](std::string_view sign) {
      return line.find(sign) != line.npos;
    });
    if (bad) found.emplace_back(line);
  }
  return found;
}

void judge(const KernelResources& kernel, std::vector<std::string>& faults) {
  if (kernel.spill_store_bytes + kernel.spill_load_bytes > 0) {
    faults.push_back(fmt::format("{} spills: {} bytes of stores, {} of loads", kernel.symbol,
                                 kernel.spill_store_bytes, kernel.spill_load_bytes));
  } else if (kernel.stack_bytes > 0) {
    faults.push_back(
        fmt::format("{} uses {} bytes of local memory a thread: an array is indexed "
                    "at run time",
                    kernel.symbol, kernel.stack_bytes));
  }
}

}  // namespace

std::vector<KernelResources> parse_ptxas_log(std::string_view log) {
  constexpr std::string_view kEntry = "Compiling entry function '";
  std::vector<KernelResources> kernels;
  for (const std::string_view line : lines_of(log)) {
    if (const size_t at = line.find(kEntry); at != line.npos) {
      const std::string_view rest = line.substr(at + kEntry.size());
      kernels.push_back({.symbol = std::string(rest.substr(0, rest.find('\'')))});
    } else if (!kernels.empty()) {
      read_numbers(line, kernels.back());
    }
  }
  return kernels;
}

int64_t count_wgmma(std::string_view ptx, std::string_view symbol) {
  const size_t entry = ptx.find(fmt::format(".entry {}(", symbol));
  if (entry == ptx.npos) return 0;
  const std::string_view body = ptx.substr(entry, ptx.find(".entry ", entry + 1) - entry);
  constexpr std::string_view kWgmma = "wgmma.mma_async";
  int64_t count = 0;
  for (size_t at = body.find(kWgmma); at != body.npos; at = body.find(kWgmma, at + 1)) ++count;
  return count;
}

BuildReport report_build(const ProgramSpec& spec, std::span<const EmbeddedFile> headers,
                         std::string_view arch) {
  std::vector<std::string> options = spec.options;
  options.push_back("--ptxas-options=-v");
  const CompiledProgram compiled = compile({.name = spec.name,
                                            .source = spec.source,
                                            .headers = headers,
                                            .kernels = spec.kernels,
                                            .options = options,
                                            .arch = arch,
                                            .keep_ptx = true});
  const std::vector<KernelResources> all = parse_ptxas_log(compiled.log);
  BuildReport report{.faults = warnings_of(compiled.log)};
  for (const std::string& symbol : compiled.symbols) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const KernelResources& kernel) {
      return kernel.symbol == symbol;
    });
    TILEOPS_CHECK(ErrorKind::kInternal, found != all.end(), "{}: ptxas reports nothing of {}:\n{}",
                  spec.name, symbol, compiled.log);
    report.kernels.push_back(*found);
    report.kernels.back().num_wgmma = count_wgmma(compiled.ptx, symbol);
    judge(report.kernels.back(), report.faults);
  }
  const bool has_wgmma =
      std::any_of(report.kernels.begin(), report.kernels.end(),
                  [](const KernelResources& kernel) { return kernel.num_wgmma > 0; });
  if (spec.uses_wgmma && !has_wgmma) report.faults.push_back("a matrix kernel without wgmma");
  return report;
}

std::string to_string(const ProgramSpec& spec, const BuildReport& report) {
  std::string text;
  for (size_t i = 0; i < report.kernels.size(); ++i) {
    const KernelResources& kernel = report.kernels[i];
    text += fmt::format(
        "{}: {} registers, {} barriers, {} + {} bytes of smem, {} of stack, {} wgmma: {}\n",
        spec.name, kernel.num_registers, kernel.num_barriers, kernel.static_smem_bytes,
        i == 0 ? spec.dynamic_smem_bytes : 0, kernel.stack_bytes, kernel.num_wgmma,
        spec.kernels[i]);
  }
  for (const std::string& fault : report.faults) {
    text += fmt::format("{}: fault: {}\n", spec.name, fault);
  }
  return text;
}

}  // namespace tileops::cuda
