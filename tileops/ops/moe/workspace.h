// SPDX-License-Identifier: Apache-2.0
// Where the intermediates of the experts' ops lie: in a workspace of the caller's, or in blocks
// that the process keeps for the next call.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "tileops/core/allocator.h"
#include "tileops/core/tensor.h"

namespace tileops {

/// While it lives, calls of experts' ops on this thread take their intermediates from `workspace`
/// (uint8 [bytes], contiguous); nothing where it is absent. Not for calls that overlap in time.
class WorkspaceScope {
 public:
  explicit WorkspaceScope(const Tensor& workspace);
  ~WorkspaceScope();
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

  /// The innermost scope's workspace; absent where there is none.
  static Tensor current();

 private:
  Tensor workspace_;
  const WorkspaceScope* outer_;
};

/// While it lives, fresh tensors of this thread on `device` lie in the current workspace, else, on
/// the CPU, in a kept block. `bytes`: what the call needs, each tensor padded by padded_bytes().
/// Errors: kValue (a workspace too small, or not of bytes), kDevice (on another device).
class IntermediatesGuard {
 public:
  IntermediatesGuard(const char* op, Device device, int64_t bytes);
  ~IntermediatesGuard();
  IntermediatesGuard(const IntermediatesGuard&) = delete;
  IntermediatesGuard& operator=(const IntermediatesGuard&) = delete;

 private:
  std::optional<AllocatorGuard> guard_;
  std::function<void()> release_;
};

/// What a tensor of so many bytes takes in a workspace.
constexpr int64_t padded_bytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Bytes of the kept blocks of this process, in use or not.
int64_t kept_workspace_bytes();

/// Frees the kept blocks that no call and no tensor uses; the next call allocates again.
void release_kept_workspace();

}  // namespace tileops
