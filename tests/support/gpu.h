// SPDX-License-Identifier: Apache-2.0
// What tests on a GPU share: the fixture that skips where there is none, and a GPU's
// implementations beside the reference on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/testing.h"
#include "tileops/core/error.h"
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

/// "" for the one that selection takes, then the keys that can be forced on a GPU where there are
/// several.
template <class OpT>
std::vector<std::string> gpu_keys() {
  std::vector<std::string> keys{""};
  for (const AnyImplementation& kernel : OpT::kernel_types()) {
    if (kernel.info.devices.front() == DeviceType::kCUDA) keys.push_back(kernel.info.key);
  }
  if (keys.size() == 2) keys.pop_back();
  return keys;
}

/// The outputs of two calls on a GPU; none where the forced implementation refuses.
template <class OpT>
std::vector<std::vector<Tensor>> two_calls_on_gpu(const Params& params,
                                                  const std::vector<Tensor>& inputs,
                                                  const std::string& key) {
  const std::vector<Tensor> on_gpu = to_gpu(inputs);
  const auto op = OpT::from_params(params, {.implementation = key});
  try {
    return {to_cpu(op->call({on_gpu, {}})), to_cpu(op->call({on_gpu, {}}))};
  } catch (const Error& error) {
    if (key.empty() || error.kind() != ErrorKind::kOpNotAvailable) throw;
    return {};
  }
}

/// Calls compare(inputs, got, want) with the op's outputs on the GPU, by each implementation that
/// does not refuse, and, by the reference, on the CPU. `same_bits`: outputs that are specified
/// whole, and equal from run to run.
template <class OpT, class Compare>
void beside_reference(const Params& params, const std::vector<Tensor>& inputs,
                      const std::vector<int>& same_bits, Compare&& compare) {
  const auto reference = OpT::from_params(params, {.implementation = "reference"});
  const Results want = reference->call({inputs, {}});
  for (const std::string& key : gpu_keys<OpT>()) {
    SCOPED_TRACE(key);
    const auto calls = two_calls_on_gpu<OpT>(params, inputs, key);
    if (calls.empty()) continue;
    for (const int i : same_bits) {
      const auto at = static_cast<size_t>(i);
      ASSERT_EQ(calls[0][at].defined(), want[i].defined());
      if (!want[i].defined()) continue;
      EXPECT_TRUE(bit_equal(calls[0][at], calls[1][at])) << "output " << i;
    }
    compare(inputs, calls[0], want);
  }
}

/// Compares output 0 by its relative error.
inline void compare_first_output(const std::vector<Tensor>&, const std::vector<Tensor>& got,
                                 const Results& want) {
  EXPECT_LE(relative_error(got[0], want[0]), tolerance(want[0].dtype()));
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
