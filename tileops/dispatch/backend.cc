// SPDX-License-Identifier: Apache-2.0
#include "tileops/dispatch/backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <sstream>

#include "tileops/core/check.h"
#include "tileops/core/log.h"

#define TILEOPS_TEXT_OF(x) #x
#define TILEOPS_TEXT(x) TILEOPS_TEXT_OF(x)

namespace tileops {
namespace {

constexpr const char* kEntryPoint = TILEOPS_TEXT(TILEOPS_BACKEND_ENTRY_POINT);

struct Backends {
  std::recursive_mutex loading;  // held while backends load; recursive: a backend may make ops
  bool loaded_all = false;       // guarded by loading
  bool in_progress = false;      // guarded by loading
  std::vector<std::string> tried;
  std::mutex mutex;  // guards the two lists below
  std::vector<std::string> loaded;
  std::vector<LoadFailure> failures;
};

Backends& backends() {
  static auto& instance = *new Backends;
  return instance;
}

/// Applies registrations at once and takes them back in reverse order unless it is committed.
class Transaction final : public BackendRegistrar {
 public:
  Transaction() = default;
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction() override {
    if (committed_) return;
    for (auto it = undo_.rbegin(); it != undo_.rend(); ++it) {
      try {
        (*it)();
      } catch (...) {
        // Taken back already, or relied on by another registration since: the rest is undone still.
      }
    }
  }

  void target_builder(std::string_view target, std::string_view op,
                      TargetBuilder builder) override {
    apply([&] { register_target_builder(target, op, std::move(builder)); },
          [target = std::string(target), op = std::string(op)] {
            unregister_target_builder(target, op);
          });
  }
  void target_detector(std::string_view target, TargetDetector detector) override {
    apply([&] { register_target_detector(target, std::move(detector)); },
          [target = std::string(target)] { unregister_target_detector(target); });
  }
  void kernel_type(std::string_view op, AnyImplementation implementation) override {
    const std::string key = implementation.info.key;
    apply([&] { register_kernel_type(op, std::move(implementation)); },
          [op = std::string(op), key] { unregister_kernel_type(op, key); });
  }
  void commit() { committed_ = true; }

 private:
  /// What can fail of noting the undo fails before there is anything to undo.
  template <class Register>
  void apply(Register&& register_it, std::function<void()> undo) {
    undo_.reserve(undo_.size() + 1);
    register_it();
    undo_.push_back(std::move(undo));
  }

  bool committed_ = false;
  std::vector<std::function<void()>> undo_;
};

void run_entry_point(BackendEntryPoint entry_point) {
  Transaction transaction;
  entry_point(transaction);
  transaction.commit();
}

void load_library(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TILEOPS_CHECK(ErrorKind::kBackend, handle != nullptr, "{}", dlerror());
  void* symbol = dlsym(handle, kEntryPoint);
  if (symbol == nullptr) {
    dlclose(handle);
    raise(ErrorKind::kBackend, "it does not export {}, the entry point of this version",
          kEntryPoint);
  }
  // A library that threw stays mapped: the exception's type information lives in it.
  run_entry_point(reinterpret_cast<BackendEntryPoint>(symbol));
  Backends& b = backends();
  std::lock_guard lock(b.mutex);
  b.loaded.push_back(path);
}

std::string own_backend_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&load_backends), &info) == 0) return {};
  return (std::filesystem::path(info.dli_fname).parent_path() / "tileops" / "backends").string();
}

std::vector<std::string> search_path() {
  std::vector<std::string> folders;
  if (const char* variable = std::getenv(kBackendPathVariable)) {
    std::istringstream text(variable);
    for (std::string folder; std::getline(text, folder, ':');) {
      if (!folder.empty()) folders.push_back(folder);
    }
  }
  folders.push_back(own_backend_folder());
  return folders;
}

std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  for (const std::string& folder : search_path()) {
    std::error_code error;
    std::vector<std::string> here;
    for (const auto& file : std::filesystem::directory_iterator(folder, error)) {
      if (file.path().extension() == ".so") here.push_back(file.path().string());
    }
    std::sort(here.begin(), here.end());
    paths.insert(paths.end(), here.begin(), here.end());
  }
  return paths;
}

void note_failure(const std::string& path, const char* error) {
  Backends& b = backends();
  {
    std::lock_guard lock(b.mutex);
    b.failures.push_back({path, error});
  }
  try {
    warn(fmt::format("backend {} was not loaded: {}", path, error));
  } catch (const std::exception&) {
    // A warning handler that throws must not cut the loading of the others short.
  }
}

class InProgress {
 public:
  explicit InProgress(bool& flag) : flag_(flag) { flag_ = true; }
  ~InProgress() { flag_ = false; }
  InProgress(const InProgress&) = delete;
  InProgress& operator=(const InProgress&) = delete;

 private:
  bool& flag_;
};

}  // namespace

void load_backends() {
  Backends& b = backends();
  std::lock_guard lock(b.loading);
  if (b.loaded_all || b.in_progress) return;
  const InProgress guard(b.in_progress);
  for (const std::string& path : candidates()) {
    if (std::find(b.tried.begin(), b.tried.end(), path) != b.tried.end()) continue;
    try {
      load_library(path);
    } catch (const std::exception& e) {
      note_failure(path, e.what());
    }
    b.tried.push_back(path);
  }
  b.loaded_all = true;
}

void load_backend(const std::string& path) {
  Backends& b = backends();
  std::lock_guard lock(b.loading);
  try {
    load_library(path);
  } catch (const std::exception& e) {
    raise(ErrorKind::kBackend, "backend {}: {}", path, e.what());
  }
}

void register_backend(std::string_view name, BackendEntryPoint entry_point) {
  TILEOPS_CHECK(ErrorKind::kBackend, entry_point != nullptr, "backend {}: its entry point is null",
                name);
  run_entry_point(entry_point);
}

std::vector<LoadFailure> load_failures() {
  Backends& b = backends();
  std::lock_guard lock(b.mutex);
  return b.failures;
}

std::string load_failures_note() {
  std::string note;
  for (const LoadFailure& failure : load_failures()) {
    note += fmt::format("{}{} ({})", note.empty() ? "; backends that failed to load: " : ", ",
                        failure.path, failure.error);
  }
  return note;
}

std::vector<std::string> loaded_backends() {
  Backends& b = backends();
  std::lock_guard lock(b.mutex);
  return b.loaded;
}

}  // namespace tileops
