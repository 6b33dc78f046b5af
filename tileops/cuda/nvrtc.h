// SPDX-License-Identifier: Apache-2.0
// NVRTC, found by dlopen at its first use: CUDA C++ text to machine code.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tileops/core/embedded.h"
#include "tileops/cuda/driver_abi.h"

namespace tileops::cuda {

/// The NVRTC functions that the library calls; the member's name is the function's without "nvrtc".
struct NvrtcTable {
  const char* (*get_error_string)(abi::NvrtcResult result);
  abi::NvrtcResult (*version)(int* major, int* minor);
  abi::NvrtcResult (*create_program)(abi::NvrtcProgram* program, const char* source,
                                     const char* name, int num_headers, const char* const* headers,
                                     const char* const* include_names);
  abi::NvrtcResult (*destroy_program)(abi::NvrtcProgram* program);
  abi::NvrtcResult (*add_name_expression)(abi::NvrtcProgram program, const char* expression);
  abi::NvrtcResult (*compile_program)(abi::NvrtcProgram program, int num_options,
                                      const char* const* options);
  abi::NvrtcResult (*get_program_log_size)(abi::NvrtcProgram program, size_t* bytes);
  abi::NvrtcResult (*get_program_log)(abi::NvrtcProgram program, char* log);
  abi::NvrtcResult (*get_lowered_name)(abi::NvrtcProgram program, const char* expression,
                                       const char** name);
  abi::NvrtcResult (*get_cubin_size)(abi::NvrtcProgram program, size_t* bytes);
  abi::NvrtcResult (*get_cubin)(abi::NvrtcProgram program, char* cubin);
  abi::NvrtcResult (*get_ptx_size)(abi::NvrtcProgram program, size_t* bytes);
  abi::NvrtcResult (*get_ptx)(abi::NvrtcProgram program, char* ptx);
};

/// NVRTC's table, loaded by the first call. Looked for in $TILEOPS_NVRTC (a file; nothing else is
/// tried then), by its plain name, in the folders of CUDA libraries that the process has loaded and
/// their neighbours, and in /usr/local/cuda/lib64.
/// Errors: kBuild with the places tried and the remedy.
const NvrtcTable& nvrtc();
/// One line that says why NVRTC cannot be used; none where it can.
std::optional<std::string> why_nvrtc_unavailable();
/// "13.0". Errors: nvrtc()'s.
std::string nvrtc_version();

/// Replaces the table that nvrtc() returns (null: the real one); for tests.
void set_nvrtc_for_testing(const NvrtcTable* table);

/// A translation unit to compile.
struct CompileRequest {
  std::string_view name;    // what messages call it
  std::string_view source;  // usually one #include of an embedded file
  std::span<const EmbeddedFile> headers;
  std::span<const std::string> kernels;  // name expressions
  std::span<const std::string> options;  // beyond the architecture and the language
  std::string_view arch = "sm_90a";
  bool keep_ptx = false;
};

struct CompiledProgram {
  std::vector<std::byte> cubin;
  std::vector<std::string> symbols;  // of the request's kernels, in its order
  std::string log;                   // warnings; empty in a clean build
  std::string ptx;
};

/// Errors: kBuild with NVRTC's whole log.
CompiledProgram compile(const CompileRequest& request);

}  // namespace tileops::cuda
