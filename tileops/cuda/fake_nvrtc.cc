// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/fake_nvrtc.h"

#include <cstring>
#include <map>
#include <string>

#include "tileops/cuda/nvrtc.h"

namespace tileops::cuda {
namespace {

FakeNvrtc* fake_nvrtc = nullptr;

/// One translation unit on its way through the fake compiler.
struct FakeProgram {
  std::string source;
  std::string code;
  std::string log;
  std::map<std::string, std::string> symbols;
};

FakeProgram& program_of(abi::NvrtcProgram program) {
  return *reinterpret_cast<FakeProgram*>(program);
}

abi::NvrtcResult compile_program(abi::NvrtcProgram handle, int num_options,
                                 const char* const* options) {
  FakeProgram& program = program_of(handle);
  ++fake_nvrtc->num_compiled;
  if (fake_nvrtc->while_compiling) fake_nvrtc->while_compiling();
  if (program.source.find("#error") != std::string::npos) {
    program.log = "line 1: #error of the source";
    return abi::NvrtcResult::kCompilation;
  }
  program.code = "code of " + program.source;
  for (int i = 0; i < num_options; ++i) program.code += std::string(" ") + options[i];
  return abi::NvrtcResult::kSuccess;
}

abi::NvrtcResult give_size(const std::string& text, size_t* bytes) {
  *bytes = text.size() + 1;
  return abi::NvrtcResult::kSuccess;
}

abi::NvrtcResult give_text(const std::string& text, char* out) {
  std::memcpy(out, text.c_str(), text.size() + 1);
  return abi::NvrtcResult::kSuccess;
}

NvrtcTable make_nvrtc_table() {
  using P = abi::NvrtcProgram;
  NvrtcTable t{};
  t.get_error_string = [](abi::NvrtcResult) { return "NVRTC_ERROR_COMPILATION"; };
  t.version = [](int* major, int* minor) {
    *major = 13;
    *minor = fake_nvrtc->minor_version;
    return abi::NvrtcResult::kSuccess;
  };
  t.create_program = [](P* program, const char* source, const char*, int, const char* const*,
                        const char* const*) {
    *program = reinterpret_cast<P>(new FakeProgram{.source = source});
    return abi::NvrtcResult::kSuccess;
  };
  t.destroy_program = [](P* program) {
    delete &program_of(*program);
    return abi::NvrtcResult::kSuccess;
  };
  t.add_name_expression = [](P program, const char* expression) {
    program_of(program).symbols[expression] = std::string("_Z") + expression;
    return abi::NvrtcResult::kSuccess;
  };
  t.compile_program = compile_program;
  t.get_lowered_name = [](P program, const char* expression, const char** name) {
    *name = program_of(program).symbols.at(expression).c_str();
    return abi::NvrtcResult::kSuccess;
  };
  t.get_program_log_size = [](P p, size_t* n) { return give_size(program_of(p).log, n); };
  t.get_program_log = [](P p, char* out) { return give_text(program_of(p).log, out); };
  t.get_cubin_size = [](P p, size_t* n) { return give_size(program_of(p).code, n); };
  t.get_cubin = [](P p, char* out) { return give_text(program_of(p).code, out); };
  t.get_ptx_size = [](P p, size_t* n) { return give_size(program_of(p).code, n); };
  t.get_ptx = [](P p, char* out) { return give_text(program_of(p).code, out); };
  return t;
}

}  // namespace

FakeNvrtc::FakeNvrtc() {
  static const NvrtcTable table = make_nvrtc_table();
  fake_nvrtc = this;
  set_nvrtc_for_testing(&table);
}

FakeNvrtc::~FakeNvrtc() {
  set_nvrtc_for_testing(nullptr);
  fake_nvrtc = nullptr;
}

}  // namespace tileops::cuda
