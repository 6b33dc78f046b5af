// SPDX-License-Identifier: Apache-2.0
// What a layer's call asks of the driver, over a fake one: each call costs the host microseconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/cache_folder.h"
#include "tileops/core/call_path.h"
#include "tileops/core/error_testing.h"
#include "tileops/core/launch_batch.h"
#include "tileops/cuda/allocator.h"
#include "tileops/cuda/fake_driver.h"
#include "tileops/cuda/fake_nvrtc.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/launch_batch.h"
#include "tileops/dispatch/kernel_registry.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_params.h"
#include "tileops/ops/moe/post_permute/post_permute_kernel.h"
#include "tileops/ops/moe/prepare_finalize.h"

namespace tileops {
namespace {

using cuda::kCuda0;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr unsigned kGemmThreads = 384;
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

  /// Of the grouped GEMMs that `work` launches, whether each awaits rows of the one before.
  template <class Work>
  std::vector<bool> awaits_rows(const Work& work) {
    std::vector<bool> awaits;
    fake.on_launch = [&](void** arguments) {
      if (fake.launches.back().config.cta_x != kGemmThreads) return;
      const auto* params = static_cast<const grouped_gemm::GroupedGemmSm90Params*>(arguments[0]);
      awaits.push_back(params->rows_awaited != nullptr);
    };
    work();
    fake.on_launch = nullptr;
    return awaits;
  }

  testing::CacheFolder folder{"fused_moe_driver"};
  cuda::FakeDriver fake;
  cuda::FakeNvrtc nvrtc;
  const FusedMoEFwdOp layer{{.top_k = kTopK, .renormalize = true}};
  const Tensor w_gate_up = on_gpu({kExperts, 2 * kInter, kHidden}),
               w_down = on_gpu({kExperts, kHidden, kInter});
};

TEST_F(FusedMoEDriver, LaunchesGrowWithTheTokens) {
  EXPECT_EQ(launches_of_call(8), 2U) << "router, experts";
  EXPECT_EQ(launches_of_call(9), 5U) << "router, permute, gate_up, down, combine";
  EXPECT_EQ(launches_of_call(256), 5U);
  EXPECT_EQ(launches_of_call(257), 6U) << "a sort before the copy";
  EXPECT_EQ(launches_of_call(4096), 6U);
}

TEST_F(FusedMoEDriver, FromTheSecondCallOnTheLaunchesAreOneRequest) {
  for (const int64_t num_tokens : {8, 64, 512}) {
    call(num_tokens);
    fake.launches.clear();
    const int64_t requests = fake.num_graph_launches;
    call(num_tokens);
    EXPECT_EQ(fake.num_graph_launches - requests, 1) << num_tokens;
    EXPECT_THAT(fake.launches, Each(Field(&cuda::FakeLaunch::in_graph, true))) << num_tokens;
  }
}

TEST_F(FusedMoEDriver, ARequestHasTheTensorsOfItsCall) {
  const Tensor other_gate_up = on_gpu({kExperts, 2 * kInter, kHidden}),
               other_down = on_gpu({kExperts, kHidden, kInter});
  call(64);
  call(64);
  std::vector<const void*> weights;
  fake.on_launch = [&](void** arguments) {
    if (fake.launches.back().config.cta_x != kGemmThreads) return;
    weights.push_back(static_cast<const grouped_gemm::GroupedGemmSm90Params*>(arguments[0])->b);
  };
  layer(on_gpu({64, kHidden}), on_gpu({64, kExperts}, DType::kF32), other_gate_up, other_down);
  fake.on_launch = nullptr;
  EXPECT_THAT(weights, ElementsAre(other_gate_up.data(), other_down.data()));
  EXPECT_TRUE(fake.launches.back().in_graph);
}

/// A kernel from elsewhere, which may use the device in any way.
struct ForeignSum final : post_permute::PostPermuteKernel {
  explicit ForeignSum(std::function<void()> w) : work(std::move(w)) {}
  void run(const post_permute::Args&) const override { work(); }
  std::function<void()> work;
};

TEST_F(FusedMoEDriver, WhatCameBeforeAForeignKernelHasBeenSent) {
  size_t sent = 0;
  const auto look = [&] { sent = fake.launches.size(); };
  register_kernel_type<post_permute::PostPermute>(
      "MoEPostPermuteFwdOp",
      {.info = {.key = "foreign",
                .devices = {DeviceType::kCUDA},
                .preferred_over = {"sm90_weighted_sum"}},
       .refusal = [](const post_permute::Call&) { return std::nullopt; },
       .entry_for = [&](const post_permute::Call&) -> EntryFor<post_permute::PostPermute> {
         return {"foreign",
                 [&](const BuildOptions&) { return std::make_shared<ForeignSum>(look); }};
       }});
  {
    const FusedMoEFwdOp with_foreign({.top_k = kTopK, .renormalize = true});
    for (int i = 0; i < 2; ++i) {
      fake.launches.clear();
      with_foreign(on_gpu({64, kHidden}), on_gpu({64, kExperts}, DType::kF32), w_gate_up, w_down);
      EXPECT_EQ(sent, 4U) << "router, permute, gate_up, down";
    }
  }
  unregister_kernel_type("MoEPostPermuteFwdOp", "foreign");
}

struct LookingPrepareFinalize final : PrepareFinalize {
  explicit LookingPrepareFinalize(const cuda::FakeDriver& driver) : fake(driver) {}
  Prepared prepare(const RoutedTokens& tokens, int64_t) const override {
    sent.push_back(fake.launches.size());
    return {tokens, nullptr};
  }
  Tensor finalize(const Tensor& output, const Prepared&, const RoutedTokens&) const override {
    sent.push_back(fake.launches.size());
    return output;
  }
  const cuda::FakeDriver& fake;
  mutable std::vector<size_t> sent;
};

TEST_F(FusedMoEDriver, WhatCameBeforeInjectedCodeHasBeenSent) {
  const auto looking = std::make_shared<LookingPrepareFinalize>(fake);
  const FusedMoEFwdOp with_injected({.top_k = kTopK, .renormalize = true},
                                    {.prepare_finalize = looking});
  for (int i = 0; i < 2; ++i) {
    fake.launches.clear();
    looking->sent.clear();
    with_injected(on_gpu({64, kHidden}), on_gpu({64, kExperts}, DType::kF32), w_gate_up, w_down);
    EXPECT_THAT(looking->sent, ElementsAre(1, 5));
  }
}

TEST_F(FusedMoEDriver, TuningWithinACallPutsNothingOff) {
  const FusedMoEFwdOp tuned({.top_k = kTopK, .renormalize = true});
  tuned.request_tune();
  size_t measured = 0;
  fake.on_launch = [&](void**) { measured += LaunchBatch::current() == nullptr ? 1 : 0; };
  const auto call_tuned = [&] {
    tuned(on_gpu({64, kHidden}), on_gpu({64, kExperts}, DType::kF32), w_gate_up, w_down);
  };
  call_tuned();
  EXPECT_GT(measured, 10U);
  measured = 0;
  call_tuned();
  EXPECT_EQ(measured, 0U) << "tuned once";
  fake.on_launch = nullptr;
}

TEST_F(FusedMoEDriver, AnErrorNamesThePathOfCalls) {
  call(64);
  cuda::set_synchronous_launches(true);
  fake.fail("stream_synchronize", cuda::abi::Result::kIllegalAddress);
  EXPECT_THAT(error_of([&] { call(64); }), HasSubstr(" in FusedMoEFwdOp > route_select on cuda:0"));
  fake.succeed("stream_synchronize");
  fake.on_launch = [&](void**) {
    if (fake.launches.back().config.cta_x == kGemmThreads) {
      fake.fail("stream_synchronize", cuda::abi::Result::kIllegalAddress);
    }
  };
  EXPECT_THAT(
      error_of([&] { call(64); }),
      HasSubstr(" in FusedMoEFwdOp > routed_experts > expert_mlp > gate_up on cuda:0 (grid"));
  fake.on_launch = nullptr;
  fake.succeed("stream_synchronize");
  cuda::set_synchronous_launches(false);
  call(64);
}

std::vector<std::string>& marks() {
  static std::vector<std::string> names;
  return names;
}

TEST_F(FusedMoEDriver, AMarkerSeesStagesBeginAndEnd) {
  static constexpr CallMarker kMarker = {.begin = [](const char* name) { marks().push_back(name); },
                                         .end = [] { marks().emplace_back("end"); }};
  call(64);
  set_call_marker(&kMarker);
  call(64);
  set_call_marker(nullptr);
  call(64);
  EXPECT_THAT(marks(), ElementsAre("FusedMoEFwdOp", "route_select", "end", "routed_experts",
                                   "pre_permute", "end", "expert_mlp", "gate_up", "end", "down",
                                   "end", "end", "post_permute", "end", "end", "end"));
}

TEST_F(FusedMoEDriver, DownOfAnExpertMlpAwaitsRowsWhereNothingCanComeBetween) {
  EXPECT_THAT(awaits_rows([&] { call(64); }), ElementsAre(false, false)) << "one by one";
  EXPECT_THAT(awaits_rows([&] { call(64); }), ElementsAre(false, true)) << "one request";
  const cuda::OwnedStream stream(kCuda0);
  const cuda::Graph graph = cuda::Graph::capture(stream, [&] { call(64); });
  EXPECT_THAT(awaits_rows([&] { graph.replay(stream); }), ElementsAre(false, true));
  const MoEGroupedGemmFwdOp gate_up(MGroupedLayout::contiguous(), GatedActivation::silu_and_mul),
      down(MGroupedLayout::contiguous());
  const Tensor rows = on_gpu({64, kHidden}), metadata = on_gpu({kExperts}, DType::kI32);
  const auto by_hand = [&] { down(gate_up(rows, w_gate_up, metadata), w_down, metadata); };
  EXPECT_THAT(awaits_rows(by_hand), ElementsAre(false, false)) << "anything may run between them";
}

TEST_F(FusedMoEDriver, OnlyTheRowsOfTheGemmRightBeforeAreAwaitedCutAlikeAndNotOverwritten) {
  const auto layout = MGroupedLayout::contiguous();
  const MoEGroupedGemmFwdOp gate_up(layout, GatedActivation::silu_and_mul), down(layout);
  const MoEGroupedGemmFwdOp down_of_128(layout, {}, {},
                                        {.kernel_config = {{"tile_rows", int64_t{128}}}});
  const Tensor rows = on_gpu({64, kHidden}), metadata = on_gpu({kExperts}, DType::kI32),
               other_metadata = on_gpu({kExperts}, DType::kI32);
  const auto in_one_request = [&](const std::function<void()>& calls) {
    const auto once = [&] {
      cuda::LaunchScope scope(kCuda0);
      calls();
      scope.submit();
    };
    once();
    return awaits_rows(once);
  };
  const auto up = [&] { return gate_up(rows, w_gate_up, metadata); };
  EXPECT_THAT(in_one_request([&] { down(up(), w_down, metadata); }), ElementsAre(false, true));
  EXPECT_THAT(in_one_request([&] { gate_up(down(up(), w_down, metadata), w_gate_up, metadata); }),
              ElementsAre(false, true, false))
      << "one pair at a time";
  EXPECT_THAT(in_one_request([&] { down_of_128(up(), w_down, metadata); }),
              ElementsAre(false, false))
      << "other row tiles";
  EXPECT_THAT(in_one_request([&] { down(up(), w_down, other_metadata); }),
              ElementsAre(false, false));
  EXPECT_THAT(in_one_request([&] { down(up(), w_down, metadata, {.out = rows}); }),
              ElementsAre(false, false))
      << "gate_up may still read them";
  EXPECT_THAT(in_one_request([&] {
                const Tensor hidden = up();
                up();
                down(hidden, w_down, metadata);
              }),
              ElementsAre(false, false, false))
      << "another GEMM between them";
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
  call(8);
  const int64_t before = fake.live_bytes;
  call(4096);
  EXPECT_LE(fake.live_bytes - before, int64_t{65} << 20);
}

}  // namespace
}  // namespace tileops
