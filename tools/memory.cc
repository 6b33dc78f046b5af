// SPDX-License-Identifier: Apache-2.0
#include "tools/memory.h"

#include <atomic>
#include <chrono>

#include "tileops/core/allocator.h"
#include "tileops/core/check.h"
#include "tools/output.h"

namespace tileops::tools {
namespace {

/// Passes on to another allocator. Never destroyed: tensors outlive guards.
class CountingAllocator final : public Allocator {
 public:
  static CountingAllocator& instance() {
    static auto& allocator = *new CountingAllocator;
    return allocator;
  }
  void begin(Allocator* inner) {
    inner_ = inner;
    used_bytes_ = 0;
    peak_bytes_ = 0;
  }
  Allocator* inner() const { return inner_; }
  int64_t peak_bytes() const { return peak_bytes_; }

  void* allocate(size_t bytes, Stream stream) override {
    void* const data = inner_->allocate(bytes, stream);
    const int64_t used = used_bytes_ += static_cast<int64_t>(bytes);
    int64_t peak = peak_bytes_;
    while (used > peak && !peak_bytes_.compare_exchange_weak(peak, used)) continue;
    return data;
  }
  void deallocate(void* data, size_t bytes, Stream stream) noexcept override {
    used_bytes_ -= static_cast<int64_t>(bytes);
    inner_->deallocate(data, bytes, stream);
  }

 private:
  Allocator* inner_ = nullptr;
  std::atomic<int64_t> used_bytes_{0}, peak_bytes_{0};
};

Tensor input_of(const std::vector<Tensor>& inputs, const spec::Entry& entry,
                std::string_view name) {
  const int slot = entry.input_slot(name);
  return slot < 0 ? Tensor() : inputs[static_cast<size_t>(slot)];
}

GatedActivation activation_of(const Params& params) {
  const Value* activation = params.find("activation");
  return activation == nullptr ? GatedActivation::silu_and_mul
                               : GatedActivation::from_value(*activation);
}

}  // namespace

CountedAllocations::CountedAllocations() {
  CountingAllocator::instance().begin(&allocator_for(DeviceType::kCPU));
  set_allocator(DeviceType::kCPU, &CountingAllocator::instance());
}

CountedAllocations::~CountedAllocations() {
  set_allocator(DeviceType::kCPU, CountingAllocator::instance().inner());
}

int64_t CountedAllocations::peak_bytes() const {
  return CountingAllocator::instance().peak_bytes();
}

PackedInputs pack_weights(const std::vector<Tensor>& inputs, const spec::Entry& entry,
                          const Params& params) {
  const Tensor gate_up = input_of(inputs, entry, "w_gate_up"),
               down = input_of(inputs, entry, "w_down");
  TILEOPS_CHECK(ErrorKind::kValue, gate_up.defined() && down.defined(),
                "{}: --pack is for ops that take w_gate_up and w_down", entry.name());
  progress("packing the weights");
  const auto start = std::chrono::steady_clock::now();
  PackedInputs packed;
  packed.routed.emplace(gate_up, down, activation_of(params));
  const Tensor shared_gate_up = input_of(inputs, entry, "shared_w_gate_up");
  if (shared_gate_up.defined()) {
    packed.shared.emplace(shared_gate_up, input_of(inputs, entry, "shared_w_down"));
  }
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  packed.ms = time.count();
  clear_progress();
  return packed;
}

}  // namespace tileops::tools
