// SPDX-License-Identifier: Apache-2.0
// Backends: shared libraries that register targets and kernel types when they are loaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tileops/dispatch/implementation.h"
#include "tileops/dispatch/kernel_registry.h"
#include "tileops/dispatch/target.h"

/// Each backend library exports a function of this name and of type tileops::BackendEntryPoint. The
/// number is the version of everything that the entry point can reach; a library that exports
/// another one only is refused with both numbers.
#define TILEOPS_BACKEND_ENTRY_POINT tileops_backend_register_v1

namespace tileops {

/// Collects what a backend registers; all of it takes effect when the entry point returns, none
/// where it throws or where one of its registrations is refused.
class BackendRegistrar {
 public:
  virtual ~BackendRegistrar() = default;
  virtual void target_builder(std::string_view target, std::string_view op,
                              TargetBuilder builder) = 0;
  virtual void target_detector(std::string_view target, TargetDetector detector) = 0;
  virtual void kernel_type(std::string_view op, AnyImplementation implementation) = 0;
};

using BackendEntryPoint = void (*)(BackendRegistrar& registrar);

/// Environment variable with the folders to search, separated by colons.
inline constexpr const char* kBackendPathVariable = "TILEOPS_BACKEND_PATH";

/// Loads every "*.so" of the search path's folders (in the path's order, by file name within a
/// folder), once per process; the folder tileops/backends beside the library comes last. A backend
/// that fails undoes all its registrations, is warned of, and is listed in load_failures(). An
/// exception that is not a std::exception (an interrupt) is undone and reaches the caller, and the
/// next call loads what is left. Thread safety: any thread; others wait.
void load_backends();

/// Loads one library now. Errors: kBackend with the fault; all of its registrations undone.
void load_backend(const std::string& path);

/// Runs an entry point that is linked in, with the same undo. Errors: what it throws.
void register_backend(std::string_view name, BackendEntryPoint entry_point);

struct LoadFailure {
  std::string path;
  std::string error;
};
std::vector<LoadFailure> load_failures();
/// "; backends that failed to load: x.so (…)", or "" where none failed.
std::string load_failures_note();
/// Paths of the backends that are loaded, in load order.
std::vector<std::string> loaded_backends();

}  // namespace tileops
