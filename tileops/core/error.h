// SPDX-License-Identifier: Apache-2.0
// Errors: one exception class with a kind that a program can act on and a line that a person can.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tileops {

/// What an error is about; each kind is its own class in Python (given in the comment).
enum class ErrorKind {
  kValue,               // ValueError: a parameter, a name or contents that cannot be
  kType,                // TypeError: an argument of the wrong type, a wrong argument count
  kShape,               // ValueError: a tensor's shape or strides disagree with the spec
  kDType,               // TypeError: a tensor's dtype disagrees with the spec
  kDevice,              // ValueError: a tensor or request on a device that cannot be
  kState,               // RuntimeError: asked when there is no answer yet (last_call before a call)
  kDelegate,            // RuntimeError: the rules of holding sub-ops are broken
  kOpNotAvailable,      // OpNotAvailableError: nothing can serve this call
  kAmbiguousSelection,  // AmbiguousSelectionError: several implementations claim one call
  kAmbiguousTarget,     // AmbiguousTargetError: several targets claim one device
  kBackend,             // BackendError: a backend broke its contract
  kSpec,                // SpecError: an entry or expression of the spec is malformed
  kBuild,               // BuildError: a kernel could not be built
  kIo,                  // OSError: a file is missing, unreadable or malformed
  kOutOfMemory,         // MemoryError
  kInternal,            // RuntimeError: a fault of this library
};

/// The name of the kind as users see it, such as "ValueError".
std::string_view error_kind_name(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace tileops
