// SPDX-License-Identifier: Apache-2.0
// What a layer's call asks of the driver, over a fake one: each call costs the host microseconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/cache_folder.h"
#include "tileops/cuda/allocator.h"
#include "tileops/cuda/fake_driver.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_params.h"

namespace tileops {
namespace {

using cuda::kCuda0;
using ::testing::ElementsAre;

constexpr int64_t kExperts = 128, kHidden = 2048, kInter = 64, kTopK = 8;

struct FusedMoEDriver : ::testing::Test {
  FusedMoEDriver() { cuda::release_cached_memory(kCuda0); }
  ~FusedMoEDriver() override { cuda::release_cached_memory(kCuda0); }

  static Tensor on_gpu(const Shape& shape, DType dtype = DType::kBF16) {
    return Tensor::empty(shape, dtype, kCuda0);
  }

  void call(int64_t num_tokens) const {
    layer(on_gpu({num_tokens, kHidden}), on_gpu({num_tokens, kExperts}, DType::kF32), w_gate_up,
          w_down);
  }

  size_t launches_of_call(int64_t num_tokens) {
    call(num_tokens);
    fake.launches.clear();
    call(num_tokens);
    return fake.launches.size();
  }

  /// Of the grouped GEMMs that `work` launches, whether each may start early.
  template <class Work>
  std::vector<int32_t> operands_settled(const Work& work) {
    constexpr unsigned kGemmThreads = 384;
    std::vector<int32_t> settled;
    fake.on_launch = [&](void** arguments) {
      if (fake.launches.back().config.cta_x != kGemmThreads) return;
      const auto* params = static_cast<const grouped_gemm::GroupedGemmSm90Params*>(arguments[0]);
      settled.push_back(params->operands_settled);
    };
    work();
    fake.on_launch = nullptr;
    return settled;
  }

  testing::CacheFolder folder{"fused_moe_driver"};
  cuda::FakeDriver fake;
  cuda::FakeNvrtc nvrtc;
  const FusedMoEFwdOp layer{{.top_k = kTopK, .renormalize = true}};
  const Tensor w_gate_up = on_gpu({kExperts, 2 * kInter, kHidden}),
               w_down = on_gpu({kExperts, kHidden, kInter});
};

TEST_F(FusedMoEDriver, LaunchesGrowWithTheTokens) {
  EXPECT_EQ(launches_of_call(16), 2U) << "router, experts";
  EXPECT_EQ(launches_of_call(33), 5U) << "router, permute, gate_up, down, combine";
  EXPECT_EQ(launches_of_call(256), 5U);
  EXPECT_EQ(launches_of_call(257), 6U) << "a sort before the copy";
  EXPECT_EQ(launches_of_call(4096), 6U);
}

TEST_F(FusedMoEDriver, OnlyDownOfAnExpertMlpStartsEarly) {
  EXPECT_THAT(operands_settled([&] { call(64); }), ElementsAre(0, 1));
  EXPECT_THAT(operands_settled([&] { call(64); }), ElementsAre(0, 1)) << "again";
  const MoEGroupedGemmFwdOp gate_up(MGroupedLayout::contiguous(), GatedActivation::silu_and_mul),
      down(MGroupedLayout::contiguous());
  const Tensor rows = on_gpu({64, kHidden}), metadata = on_gpu({kExperts}, DType::kI32);
  const auto by_hand = [&] { down(gate_up(rows, w_gate_up, metadata), w_down, metadata); };
  EXPECT_THAT(operands_settled(by_hand), ElementsAre(0, 0)) << "anything may run between them";
}

TEST_F(FusedMoEDriver, ACallOfAboutTheSizeOfTheOneBeforeAllocatesNothing) {
  for (const int64_t num_tokens : {1, 128, 512}) {
    call(num_tokens);
    const int64_t allocations = fake.num_allocations, frees = fake.num_frees;
    call(num_tokens);
    call(num_tokens - num_tokens / 16);
    EXPECT_EQ(fake.num_allocations, allocations) << num_tokens;
    EXPECT_EQ(fake.num_frees, frees) << num_tokens;
  }
}

TEST_F(FusedMoEDriver, WhatALargeCallLeavesIsBounded) {
  call(16);
  const int64_t before = fake.live_bytes;
  call(4096);
  EXPECT_LE(fake.live_bytes - before, int64_t{65} << 20);
}

}  // namespace
}  // namespace tileops
