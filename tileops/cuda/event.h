// SPDX-License-Identifier: Apache-2.0
// Device time: events, and a cold L2 before what is measured.
#pragma once

#include "tileops/core/stream.h"
#include "tileops/core/tensor.h"
#include "tileops/cuda/driver_abi.h"

namespace tileops::cuda {

/// A point in a stream's work. Move-only.
class Event {
 public:
  explicit Event(Device device);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  void record(Stream stream);
  /// Waits until the recorded point is reached. Errors: kInternal with the fault of what ran.
  void synchronize() const;
  /// Makes later work of a stream wait for the recorded point.
  void block(Stream stream) const;
  Device device() const { return device_; }
  abi::Event handle() const { return handle_; }

 private:
  Device device_;
  abi::Event handle_ = nullptr;
};

/// Device time between two reached points. Errors: kInternal (one was not recorded).
double elapsed_us(const Event& start, const Event& end);

/// Empties a device's L2 cache by writing a buffer of twice its size.
class L2Flush {
 public:
  explicit L2Flush(Device device);
  /// Asynchronous.
  void run(Stream stream) const;

 private:
  Tensor buffer_;
};

}  // namespace tileops::cuda
