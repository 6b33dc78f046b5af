// SPDX-License-Identifier: Apache-2.0
#include "tileops/cuda/launch_batch.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "tileops/cuda/driver.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/launch_graph.h"

namespace tileops::cuda {

/// A thread's, used again for each scope, so that a call allocates nothing.
class BatchedLaunches final : public LaunchBatch {
 public:
  BatchedLaunches() { returned_.reserve(kMaxReturned); }

  void open(Stream stream, bool is_captured) {
    stream_ = stream;
    is_captured_ = is_captured;
    set_current(this);
  }

  void close() {
    set_current(nullptr);
    count_ = used_ = 0;
    give_back();
  }

  /// False where the launch is no part of this batch.
  bool add(const Function& function, const LaunchShape& shape, Stream stream,
           std::span<const LaunchArgument> arguments) {
    if (!(stream == stream_)) return false;
    size_t bytes = 0;
    for (const LaunchArgument& argument : arguments) bytes += padded(argument.bytes);
    if (bytes > sizeof(argument_bytes_)) return false;
    if (!has_room(bytes)) submit();
    PutOffLaunch& launch = launches_[count_];
    launch.function = &function;
    launch.shape = shape;
    launch.undo_overlap = nullptr;
    launch.bytes = {argument_bytes_ + used_, bytes};
    for (size_t i = 0; i < arguments.size(); ++i) {
      launch.arguments[i] = argument_bytes_ + used_;
      std::memcpy(launch.arguments[i], arguments[i].data, arguments[i].bytes);
      used_ += padded(arguments[i].bytes);
    }
    ++count_;
    return true;
  }

  PutOff last(Stream stream, size_t next_bytes) const {
    if (count_ == 0 || !(stream == stream_) || !has_room(padded(next_bytes))) return {};
    return {launches_[count_ - 1].function, launches_[count_ - 1].arguments[0]};
  }

  void undo_overlap_of_last_two(void (*undo)(void*)) {
    launches_[count_ - 2].undo_overlap = undo;
    launches_[count_ - 1].undo_overlap = undo;
  }

  void submit() override {
    const std::span<PutOffLaunch> launches(launches_.data(), count_);
    count_ = used_ = 0;
    if (!launches.empty()) send(launches);
    give_back();
  }

  void give_back_later(ReturnedBlock block) override { returned_.push_back(std::move(block)); }

 private:
  static constexpr size_t kAlignment = 64;  // of a tensor map
  static constexpr size_t kMaxReturned = 64;
  static constexpr size_t padded(size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  bool has_room(size_t bytes) const {
    return count_ < launches_.size() && used_ + bytes <= sizeof(argument_bytes_);
  }

  /// Another thread's launches may come between these; into a capture they may not.
  void send_one_by_one(std::span<PutOffLaunch> launches) {
    for (PutOffLaunch& each : launches) {
      if (each.undo_overlap != nullptr && !is_captured_) each.undo_overlap(each.arguments[0]);
      launch_now(*each.function, each.shape, stream_, each.arguments.data());
    }
  }

  void send(std::span<PutOffLaunch> launches) {
    std::unique_ptr<LaunchGraph> graph;
    if (launches.size() > 1 && !is_captured_) {
      graph = launch_graphs().take({stream_, launches}, launches);
    }
    if (graph == nullptr) {
      send_one_by_one(launches);
      return;
    }
    graph->run(launches);
    launch_graphs().give_back(std::move(graph));
  }

  /// What an allocator drops with a block may return another.
  void give_back() noexcept {
    for (size_t i = 0; i < returned_.size(); ++i) {
      const ReturnedBlock block = std::move(returned_[i]);
      block.allocator->deallocate(block.data, block.bytes, block.stream);
    }
    returned_.clear();
  }

  Stream stream_;
  bool is_captured_ = false;
  size_t count_ = 0, used_ = 0;
  std::array<PutOffLaunch, LaunchGraphKey::kMaxNodes> launches_;
  alignas(kAlignment) std::byte argument_bytes_[16 << 10];
  std::vector<ReturnedBlock> returned_;
};

namespace {

BatchedLaunches& batch_of_thread() {
  thread_local const auto batch = std::make_unique<BatchedLaunches>();
  return *batch;
}

BatchedLaunches* open_batch() {
  return static_cast<BatchedLaunches*>(LaunchBatch::current());  // there is no other kind
}

bool batched_from_environment() {
  const char* text = std::getenv("TILEOPS_BATCH_LAUNCHES");
  const bool is_off = text != nullptr && std::string_view(text) == "0";
  return !is_off && std::getenv("NVTX_INJECTION64_PATH") == nullptr;
}

std::atomic<bool>& batched() {
  static std::atomic<bool> on = batched_from_environment();
  return on;
}

/// Graphs hold launches that overlap from CUDA 12.3 on.
bool graphs_overlap() {
  int version = 0;
  driver().driver_get_version(&version);
  return version >= 12030;
}

bool puts_off() {
  return LaunchBatch::current() == nullptr && batched().load(std::memory_order_relaxed) &&
         !synchronous_launches() && graphs_overlap();
}

}  // namespace

LaunchScope::LaunchScope(Device device) {
  if (device.type != DeviceType::kCUDA) return;
  if (!puts_off()) return;
  const Stream stream = current_stream(device);
  batch_ = &batch_of_thread();
  batch_->open(stream, is_capturing(stream));
}

LaunchScope::~LaunchScope() {
  if (batch_ != nullptr) batch_->close();
}

void LaunchScope::submit() {
  if (batch_ != nullptr) batch_->submit();
}

bool put_off(const Function& function, const LaunchShape& shape, Stream stream,
             std::span<const LaunchArgument> arguments) {
  BatchedLaunches* batch = open_batch();
  if (batch == nullptr) return false;
  if (batch->add(function, shape, stream, arguments)) return true;
  batch->submit();
  return false;
}

PutOff put_off_before(Stream stream, size_t bytes) {
  const BatchedLaunches* batch = open_batch();
  return batch == nullptr ? PutOff() : batch->last(stream, bytes);
}

void undo_overlap_if_apart(void (*undo)(void* argument)) {
  open_batch()->undo_overlap_of_last_two(undo);
}

void set_batched_launches(bool on) { batched().store(on, std::memory_order_relaxed); }

void release_launch_graphs() { launch_graphs().clear(); }

}  // namespace tileops::cuda
