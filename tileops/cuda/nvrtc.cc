// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/nvrtc.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

#include "tileops/core/check.h"
#include "tileops/core/log.h"
#include "tileops/cuda/nvrtc_search.h"

namespace tileops::cuda {
namespace {

constexpr const char* kRemedy =
    "install nvidia-cuda-nvrtc (pip) or the CUDA toolkit, 12.0 or later, or name the file with "
    "TILEOPS_NVRTC";

struct Loaded {
  NvrtcTable table{};
  std::string failure;  // empty: the table is whole
};

template <class F>
bool find(void* library, F*& slot, const char* symbol) {
  slot = reinterpret_cast<F*>(dlsym(library, symbol));
  return slot != nullptr;
}

bool find_functions(void* library, NvrtcTable& t) {
  return find(library, t.get_error_string, "nvrtcGetErrorString") &&
         find(library, t.version, "nvrtcVersion") &&
         find(library, t.create_program, "nvrtcCreateProgram") &&
         find(library, t.destroy_program, "nvrtcDestroyProgram") &&
         find(library, t.add_name_expression, "nvrtcAddNameExpression") &&
         find(library, t.compile_program, "nvrtcCompileProgram") &&
         find(library, t.get_program_log_size, "nvrtcGetProgramLogSize") &&
         find(library, t.get_program_log, "nvrtcGetProgramLog") &&
         find(library, t.get_lowered_name, "nvrtcGetLoweredName") &&
         find(library, t.get_cubin_size, "nvrtcGetCUBINSize") &&
         find(library, t.get_cubin, "nvrtcGetCUBIN") &&
         find(library, t.get_ptx_size, "nvrtcGetPTXSize") &&
         find(library, t.get_ptx, "nvrtcGetPTX");
}

/// Loads one candidate; adds why not to `tried`.
bool load_from(const std::string& candidate, NvrtcTable& table, std::vector<std::string>& tried) {
  void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    tried.push_back(reason == nullptr ? candidate : reason);
    return false;
  }
  if (find_functions(library, table)) {
    if (log_on(Log::kBuild)) log_line(Log::kBuild, "NVRTC from " + candidate);
    return true;
  }
  tried.push_back(candidate + " lacks functions of NVRTC 12.0");
  dlclose(library);
  return false;
}

Loaded load() {
  Loaded loaded;
  const char* named = std::getenv("TILEOPS_NVRTC");
  const bool forced = named != nullptr && *named != '\0';
  const std::vector<std::string> candidates =
      forced ? std::vector<std::string>{named} : nvrtc_candidates(loaded_libraries());
  std::vector<std::string> tried;
  for (const std::string& candidate : candidates) {
    if (load_from(candidate, loaded.table, tried)) return loaded;
  }
  loaded.failure =
      fmt::format("NVRTC{} cannot be loaded ({}); {}", forced ? ", as TILEOPS_NVRTC names it," : "",
                  fmt::join(tried, "; "), kRemedy);
  return loaded;
}

const Loaded& real_nvrtc() {
  static const Loaded& loaded = *new Loaded(load());
  return loaded;
}

constinit std::atomic<const NvrtcTable*> active_table = nullptr;

/// Owns one NVRTC program.
class Program {
 public:
  explicit Program(const CompileRequest& request) : request_(request) {
    std::vector<std::string> names, texts;
    for (const EmbeddedFile& file : request.headers) {
      names.emplace_back(file.path);
      texts.emplace_back(file.text);
    }
    std::vector<const char*> name_pointers, text_pointers;
    for (const std::string& name : names) name_pointers.push_back(name.c_str());
    for (const std::string& text : texts) text_pointers.push_back(text.c_str());
    const std::string source(request.source);
    const std::string name = std::string(request.name) + ".cu";  // never a header's name
    check(nvrtc().create_program(&handle_, source.c_str(), name.c_str(),
                                 static_cast<int>(names.size()), text_pointers.data(),
                                 name_pointers.data()),
          "taking the source");
  }
  ~Program() { nvrtc().destroy_program(&handle_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void compile() const {
    for (const std::string& kernel : request_.kernels) {
      check(nvrtc().add_name_expression(handle_, kernel.c_str()), "taking kernel " + kernel);
    }
    std::vector<std::string> options = {fmt::format("--gpu-architecture={}", request_.arch),
                                        "--std=c++20"};
    options.insert(options.end(), request_.options.begin(), request_.options.end());
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    const abi::NvrtcResult result =
        nvrtc().compile_program(handle_, static_cast<int>(pointers.size()), pointers.data());
    TILEOPS_CHECK(ErrorKind::kBuild, result == abi::NvrtcResult::kSuccess,
                  "{}: NVRTC {} failed for {} ({}):\n{}", request_.name, nvrtc_version(),
                  request_.arch, nvrtc().get_error_string(result), log());
  }

  std::string log() const { return text(nvrtc().get_program_log_size, nvrtc().get_program_log); }
  std::string ptx() const { return text(nvrtc().get_ptx_size, nvrtc().get_ptx); }

  std::vector<std::byte> cubin() const {
    size_t bytes = 0;
    check(nvrtc().get_cubin_size(handle_, &bytes), "asking for the machine code's size");
    std::vector<std::byte> cubin(bytes);
    check(nvrtc().get_cubin(handle_, reinterpret_cast<char*>(cubin.data())),
          "asking for the machine code");
    return cubin;
  }

  std::string symbol(const std::string& kernel) const {
    const char* name = nullptr;
    check(nvrtc().get_lowered_name(handle_, kernel.c_str(), &name),
          "asking for the symbol of " + kernel);
    return name;
  }

 private:
  void check(abi::NvrtcResult result, const std::string& asked) const {
    TILEOPS_CHECK(ErrorKind::kBuild, result == abi::NvrtcResult::kSuccess, "{}: NVRTC {}: {}: {}",
                  request_.name, nvrtc_version(), asked, nvrtc().get_error_string(result));
  }

  /// A text of NVRTC, without the terminating zero and trailing blanks.
  std::string text(abi::NvrtcResult (*size)(abi::NvrtcProgram, size_t*),
                   abi::NvrtcResult (*get)(abi::NvrtcProgram, char*)) const {
    size_t bytes = 0;
    check(size(handle_, &bytes), "asking for a text's size");
    std::string text(bytes, '\0');
    if (bytes != 0) check(get(handle_, text.data()), "asking for a text");
    const size_t last = text.find_last_not_of(std::string_view("\0 \n", 3));
    text.resize(last == text.npos ? 0 : last + 1);
    return text;
  }

  const CompileRequest& request_;
  abi::NvrtcProgram handle_ = nullptr;
};

}  // namespace

const NvrtcTable& nvrtc() {
  if (const NvrtcTable* table = active_table.load(std::memory_order_acquire)) return *table;
  const Loaded& real = real_nvrtc();
  TILEOPS_CHECK(ErrorKind::kBuild, real.failure.empty(), "kernels cannot be built: {}",
                real.failure);
  return real.table;
}

std::optional<std::string> why_nvrtc_unavailable() {
  if (active_table.load(std::memory_order_acquire) != nullptr) return std::nullopt;
  if (real_nvrtc().failure.empty()) return std::nullopt;
  return real_nvrtc().failure;
}

std::string nvrtc_version() {
  int major = 0;
  int minor = 0;
  nvrtc().version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

void set_nvrtc_for_testing(const NvrtcTable* table) {
  active_table.store(table, std::memory_order_release);
}

CompiledProgram compile(const CompileRequest& request) {
  const Program program(request);
  program.compile();
  CompiledProgram compiled{.cubin = program.cubin(), .log = program.log()};
  for (const std::string& kernel : request.kernels) {
    compiled.symbols.push_back(program.symbol(kernel));
  }
  if (request.keep_ptx) compiled.ptx = program.ptx();
  return compiled;
}

}  // namespace tileops::cuda
