// SPDX-License-Identifier: Apache-2.0
// Every implementation of an op beside its reference, on the spec's small workloads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/testing.h"
#include "tileops/core/allocator.h"
#include "tileops/op/op.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"

namespace tileops::testing {

/// While one lives, fresh CPU tensors start with every bit set: NaN in each floating dtype.
class PoisonFreshTensors final : public Allocator {
 public:
  PoisonFreshTensors() : outer_(set_allocator(DeviceType::kCPU, this)) {}
  ~PoisonFreshTensors() override { set_allocator(DeviceType::kCPU, outer_); }
  void* allocate(size_t bytes, Stream) override {
    void* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    return std::memset(data, 0xff, bytes);
  }
  void deallocate(void* data, size_t, Stream) noexcept override { std::free(data); }

 private:
  Allocator* outer_;
};

/// "" and the keys that can be forced on the CPU, the reference aside.
template <class OpT>
std::vector<std::string> cpu_keys() {
  std::vector<std::string> keys;
  for (const AnyImplementation& kernel : OpT::kernel_types()) {
    const bool on_cpu = kernel.info.devices.front() == DeviceType::kCPU;
    if (on_cpu && kernel.info.key != "reference") keys.push_back(kernel.info.key);
  }
  if (keys.empty()) keys.emplace_back();
  return keys;
}

/// Calls compare(case, inputs, got, want) for every small workload and every CPU implementation;
/// each runs twice and must give the same bits.
template <class OpT, class Compare>
void against_reference(Compare&& compare) {
  static PoisonFreshTensors& poison =
      *new PoisonFreshTensors;  // tensors of failed tests outlive all
  (void)poison;
  const auto entry = spec::entry(OpT::kName);
  int num_cases = 0;
  for (const spec::WorkloadCase& which : spec::workload_cases(*entry)) {
    if (std::find(which.tags.begin(), which.tags.end(), "small") == which.tags.end()) continue;
    ++num_cases;
    const std::vector<Tensor> inputs = spec::make_inputs(entry, which, 11);
    const auto reference = OpT::from_params(which.params, {.implementation = "reference"});
    const Results want = reference->call({inputs, {}});
    for (const std::string& key : cpu_keys<OpT>()) {
      SCOPED_TRACE(which.id + " by " + key);
      const auto op = OpT::from_params(which.params, {.implementation = key});
      const Results got = op->call({inputs, {}});
      const Results again = op->call({inputs, {}});
      for (int i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].defined(), want[i].defined());
        if (!got[i].defined()) continue;
        EXPECT_TRUE(bit_equal(got[i], again[i])) << "output " << i;
      }
      for (const KernelUse& use : op->last_call()->kernels())
        EXPECT_EQ(use.entry->implementation, key);
      compare(which, inputs, got, want);
    }
  }
  EXPECT_GE(num_cases, 5);
}

/// The comparison of ops whose outputs are all specified: integers equal, floats within `bound`
/// (0: that of the output's dtype).
inline auto all_outputs_within(double bound = 0) {
  return [bound](const spec::WorkloadCase&, const std::vector<Tensor>&, const Results& got,
                 const Results& want) {
    for (int i = 0; i < got.size(); ++i) {
      if (!got[i].defined()) continue;
      if (got[i].dtype() == DType::kI32) {
        EXPECT_EQ(elements(got[i]), elements(want[i])) << "output " << i;
      } else {
        EXPECT_LE(relative_error(got[i], want[i]), bound > 0 ? bound : tolerance(got[i].dtype()))
            << "output " << i;
      }
    }
  };
}

}  // namespace tileops::testing
