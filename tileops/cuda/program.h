// SPDX-License-Identifier: Apache-2.0
// Programs: what the library builds for a GPU, and the list of all that selection can reach.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tileops::cuda {

/// One translation unit and the kernels wanted of it. Equal specs are built once.
struct ProgramSpec {
  std::string name;                  // what messages call it: "grouped_gemm sm90_tma"
  std::string source;                // usually one #include of an embedded file
  std::vector<std::string> kernels;  // name expressions
  std::vector<std::string> options = {};
  bool uses_wgmma = false;         // a matrix kernel: a build without wgmma is a fault
  int64_t dynamic_smem_bytes = 0;  // that its launches of the first kernel ask for; for reports
  bool operator==(const ProgramSpec&) const = default;
};

struct ProgramSpecHash {
  size_t operator()(const ProgramSpec& spec) const;
};

/// A program's machine code for one architecture.
struct Binary {
  std::vector<std::byte> cubin;
  std::vector<std::string> symbols;  // of the spec's kernels, in its order
  bool operator==(const Binary&) const = default;
};

/// Registers an implementation's programs: every configuration that its selection can reach.
/// `tileops warm` builds them ahead, and CI compiles and judges them.
using ProgramLister = std::function<std::vector<ProgramSpec>()>;
void register_programs(std::string implementation, ProgramLister lister);
/// All registered programs, in the order of the implementations' names; each once.
std::vector<ProgramSpec> registered_programs();

}  // namespace tileops::cuda
