// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/error.h"

namespace tileops {

std::string_view error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kValue:
    case ErrorKind::kShape:
    case ErrorKind::kDevice:
      return "ValueError";
    case ErrorKind::kType:
    case ErrorKind::kDType:
      return "TypeError";
    case ErrorKind::kState:
    case ErrorKind::kDelegate:
    case ErrorKind::kInternal:
      return "RuntimeError";
    case ErrorKind::kOpNotAvailable:
      return "OpNotAvailableError";
    case ErrorKind::kAmbiguousSelection:
      return "AmbiguousSelectionError";
    case ErrorKind::kAmbiguousTarget:
      return "AmbiguousTargetError";
    case ErrorKind::kBackend:
      return "BackendError";
    case ErrorKind::kSpec:
      return "SpecError";
    case ErrorKind::kBuild:
      return "BuildError";
    case ErrorKind::kIo:
      return "OSError";
    case ErrorKind::kOutOfMemory:
      return "MemoryError";
  }
  return "RuntimeError";
}

}  // namespace tileops
