// SPDX-License-Identifier: Apache-2.0
// Launches that a thread puts off, so that those of a composite reach the device in one request.
// Only launches that the library makes itself are put off; before anything else that may use the
// device runs (a target, a foreign kernel, a copy, an event), what was put off is submitted.
#pragma once

#include <cstddef>
#include <memory>

#include "tileops/core/allocator.h"

namespace tileops {

/// Memory on its way back to its allocator.
struct ReturnedBlock {
  Allocator* allocator;
  std::shared_ptr<Allocator> guarded;  // keeps a guard's allocator alive
  void* data;
  size_t bytes;
  Stream stream;
};

/// One thread's. What a device's half of the library derives from it opens and closes it.
class LaunchBatch {
 public:
  LaunchBatch(const LaunchBatch&) = delete;
  LaunchBatch& operator=(const LaunchBatch&) = delete;

  /// Sends what was put off, then gives back the memory that was returned meanwhile; the batch stays
  /// open. Errors: the launches'.
  virtual void submit() = 0;
  /// Takes memory that put-off launches may still use.
  virtual void give_back_later(ReturnedBlock block) = 0;

  /// The batch that is open on this thread; null where none is.
  static LaunchBatch* current();

 protected:
  LaunchBatch() = default;
  virtual ~LaunchBatch() = default;
  static void set_current(LaunchBatch* batch);
  friend class LaunchPause;
};

/// Submits what this thread has put off: before work that the library does not launch itself.
inline void submit_launches() {
  if (LaunchBatch* batch = LaunchBatch::current()) batch->submit();
}

/// Submits, and lets this thread put nothing off until destroyed: around what measures the device.
class LaunchPause {
 public:
  LaunchPause();
  ~LaunchPause();
  LaunchPause(const LaunchPause&) = delete;
  LaunchPause& operator=(const LaunchPause&) = delete;

 private:
  LaunchBatch* paused_;
};

}  // namespace tileops
