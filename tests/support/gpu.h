// SPDX-License-Identifier: Apache-2.0
// What tests on a GPU share: the fixture that skips where there is none, and a GPU's
// implementations beside the reference on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/testing.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/driver.h"
#include "tileops/cuda/nvrtc.h"
#include "tileops/op/op.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"

namespace tileops::testing {

inline constexpr Device kGpu{DeviceType::kCUDA, 0};

/// Skips where there is no Hopper GPU.
class HopperTest : public ::testing::Test {
 public:
  void SetUp() override {
    if (const auto reason = cuda::why_unavailable()) GTEST_SKIP() << *reason;
    if (const auto reason = cuda::why_nvrtc_unavailable()) GTEST_SKIP() << *reason;
    if (device_facts(kGpu).archs.front() != "sm_90a") GTEST_SKIP() << "the GPU is no Hopper";
  }
};

inline std::vector<Tensor> to_gpu(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  for (const Tensor& tensor : tensors) {
    copies.push_back(tensor.defined() ? cuda::to_device(tensor, kGpu) : Tensor());
  }
  return copies;
}

inline std::vector<Tensor> to_cpu(const Results& results) {
  std::vector<Tensor> copies;
  for (int i = 0; i < results.size(); ++i) {
    copies.push_back(results[i].defined() ? cuda::to_host(results[i]) : Tensor());
  }
  return copies;
}

/// Calls compare(inputs, got, want) with the op's outputs on the GPU and, by the reference, on the
/// CPU. `same_bits`: outputs that are specified whole, and equal from run to run.
template <class OpT, class Compare>
void beside_reference(const Params& params, const std::vector<Tensor>& inputs,
                      const std::vector<int>& same_bits, Compare&& compare) {
  const auto reference = OpT::from_params(params, {.implementation = "reference"});
  const Results want = reference->call({inputs, {}});
  const std::vector<Tensor> on_gpu = to_gpu(inputs);
  const auto op = OpT::from_params(params, {});
  const std::vector<Tensor> got = to_cpu(op->call({on_gpu, {}}));
  const std::vector<Tensor> again = to_cpu(op->call({on_gpu, {}}));
  for (const int i : same_bits) {
    const auto at = static_cast<size_t>(i);
    ASSERT_EQ(got[at].defined(), want[i].defined());
    if (!got[at].defined()) continue;
    EXPECT_TRUE(bit_equal(got[at], again[at])) << "output " << i;
  }
  compare(inputs, got, want);
}

/// The same on every small workload of the op's spec.
template <class OpT, class Compare>
void small_workloads_beside_reference(const std::vector<int>& same_bits, Compare&& compare) {
  const auto entry = spec::entry(OpT::kName);
  for (const spec::WorkloadCase& which : spec::workload_cases(*entry)) {
    if (std::find(which.tags.begin(), which.tags.end(), "small") == which.tags.end()) continue;
    SCOPED_TRACE(which.id);
    beside_reference<OpT>(which.params, spec::make_inputs(entry, which, 11), same_bits, compare);
  }
}

}  // namespace tileops::testing
