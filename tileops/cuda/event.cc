// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/event.h"

#include <utility>

#include "tileops/core/launch_batch.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/driver_check.h"
#include "tileops/cuda/launch.h"

namespace tileops::cuda {

Event::Event(Device device) : device_(device) {
  const ContextGuard context(device);
  TILEOPS_DRIVER_CHECK(driver().event_create(&handle_, abi::kEventDefault), "making an event on {}",
                       to_string(device));
}

Event::Event(Event&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) driver().event_destroy(handle_);
}

void Event::record(Stream stream) {
  submit_launches();
  const ContextGuard context(device_);
  TILEOPS_DRIVER_CHECK(driver().event_record(handle_, static_cast<abi::Stream>(stream.handle)),
                       "recording an event on {}", to_string(device_));
}

void Event::synchronize() const {
  const ContextGuard context(device_);
  TILEOPS_DRIVER_CHECK(driver().event_synchronize(handle_), "waiting for an event of {}",
                       to_string(device_));
}

void Event::block(Stream stream) const {
  submit_launches();
  const ContextGuard context(stream.device);
  TILEOPS_DRIVER_CHECK(
      driver().stream_wait_event(static_cast<abi::Stream>(stream.handle), handle_, 0),
      "making a stream of {} wait for an event of {}", to_string(stream.device),
      to_string(device_));
}

double elapsed_us(const Event& start, const Event& end) {
  const ContextGuard context(start.device());
  float milliseconds = 0;
  TILEOPS_DRIVER_CHECK(driver().event_elapsed_time(&milliseconds, start.handle(), end.handle()),
                       "reading the time between two events of {}", to_string(start.device()));
  return static_cast<double>(milliseconds) * 1e3;
}

L2Flush::L2Flush(Device device)
    : buffer_(Tensor::empty({2 * l2_bytes(device)}, DType::kU8, device)) {
  synchronize(current_stream(device));  // so that it may be run on any stream
}

void L2Flush::run(Stream stream) const {
  fill_bytes(buffer_.data(), 0, static_cast<size_t>(buffer_.num_elements()), stream);
}

}  // namespace tileops::cuda
