// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/packed_experts.h"

#include <atomic>
#include <cmath>
#include <mutex>
#include <shared_mutex>

#include "tileops/core/check.h"
#include "tileops/cpu/grouped_gemm.h"
#include "tileops/ops/moe/cpu_activation.h"
#include "tileops/ops/moe/packed_lookup.h"

namespace tileops {

/// One weight tensor and its packed copy; listed while it lives.
struct PackedExperts::Entry {
  Entry(const Tensor& tensor, cpu::GateLayout gate_layout);
  ~Entry();
  void stand_in();
  Tensor weights;  // keeps the address from being another tensor's
  bool released = false;
  cpu::WeightsView view;
  cpu::GateLayout gate;
  std::shared_ptr<const cpu::PackedWeights> packed;
};

namespace {

/// A shared expert's [N, K] is one expert's.
cpu::WeightsView weights_view(const Tensor& w) {
  TILEOPS_CHECK(ErrorKind::kDevice, w.device().type == DeviceType::kCPU,
                "PackedExperts: weights must be on the cpu, got {}", to_string(w));
  TILEOPS_CHECK(ErrorKind::kShape, w.rank() == 2 || w.rank() == 3,
                "PackedExperts: weights must be [E, N, K] or [N, K], got {}", to_string(w));
  if (w.rank() == 2) {
    return {w.data(), w.dtype(), 1, w.shape()[0], w.shape()[1], 0, w.strides()[0], w.strides()[1]};
  }
  return {w.data(),     w.dtype(),      w.shape()[0],   w.shape()[1],
          w.shape()[2], w.strides()[0], w.strides()[1], w.strides()[2]};
}

bool same_weights(const cpu::WeightsView& a, const cpu::WeightsView& b) {
  return a.data == b.data && a.dtype == b.dtype && a.num_experts == b.num_experts && a.n == b.n &&
         a.k == b.k && a.expert_stride == b.expert_stride && a.n_stride == b.n_stride &&
         a.k_stride == b.k_stride;
}

/// Few: two a layer. Never destroyed: handles may outlive globals.
struct Registry {
  struct Listed {
    const void* owner;
    cpu::WeightsView view;
    cpu::GateLayout gate;
    std::shared_ptr<const cpu::PackedWeights> packed;
  };
  std::shared_mutex mutex;  // guards listed
  std::vector<Listed> listed;
  std::atomic<size_t> num_listed{0};
  std::atomic<int64_t> bytes{0};
};

Registry& registry() {
  static Registry& all = *new Registry;
  return all;
}

}  // namespace

PackedExperts::Entry::Entry(const Tensor& tensor, cpu::GateLayout gate_layout)
    : weights(tensor),
      view(weights_view(tensor)),
      gate(gate_layout),
      packed(std::make_shared<const cpu::PackedWeights>(view, gate)) {
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  all.listed.push_back({this, view, gate, packed});
  all.num_listed = all.listed.size();
  all.bytes += packed->shape().bytes();
}

PackedExperts::Entry::~Entry() {
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  std::erase_if(all.listed, [this](const Registry::Listed& each) { return each.owner == this; });
  all.num_listed = all.listed.size();
  all.bytes -= packed->shape().bytes();
}

void PackedExperts::Entry::stand_in() {
  if (released) return;
  const Tensor nan = Tensor::from_values({1}, weights.dtype(), {{std::nan("")}});
  const Tensor stand_in = nan.as_strided(weights.shape(), {0, 0, 0}, 0);
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  weights = stand_in;
  view = weights_view(weights);
  released = true;
  for (Registry::Listed& each : all.listed) {
    if (each.owner == this) each.view = view;
  }
}

PackedExperts::PackedExperts(const Tensor& w_gate_up, const Tensor& w_down,
                             const GatedActivation& activation) {
  TILEOPS_CHECK(ErrorKind::kShape, w_gate_up.rank() == w_down.rank(),
                "PackedExperts: w_gate_up and w_down must both be [E, N, K] or both [N, K], got {} "
                "and {}",
                to_string(w_gate_up), to_string(w_down));
  entries_.push_back(
      std::make_shared<Entry>(w_gate_up, cpu::gate_layout(cpu_activation(activation).kind)));
  entries_.push_back(std::make_shared<Entry>(w_down, cpu::GateLayout::kNone));
}

PackedExperts::~PackedExperts() = default;

PackedExperts::StandIns PackedExperts::release_weights() {
  for (const auto& entry : entries_) entry->stand_in();
  return {entries_[0]->weights, entries_[1]->weights};
}

int64_t PackedExperts::bytes() const {
  int64_t total = 0;
  for (const auto& entry : entries_) total += entry->packed->shape().bytes();
  return total;
}

int64_t PackedExperts::process_bytes() { return registry().bytes; }

std::shared_ptr<const cpu::PackedWeights> find_packed(const cpu::WeightsView& weights,
                                                      cpu::GateLayout gate) {
  Registry& all = registry();
  if (all.num_listed == 0) return nullptr;
  std::shared_lock lock(all.mutex);
  for (const Registry::Listed& each : all.listed) {
    if (each.gate == gate && same_weights(each.view, weights)) return each.packed;
  }
  return nullptr;
}

}  // namespace tileops
