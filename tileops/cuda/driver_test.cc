// SPDX-License-Identifier: Apache-2.0
// The driver's errors as users see them, contexts, device facts and the set-up.
#include "tileops/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tileops/core/allocator.h"
#include "tileops/core/error_testing.h"
#include "tileops/cuda/allocator.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/fake_driver.h"
#include "tileops/cuda/setup.h"

namespace tileops::cuda {
namespace {

using ::testing::HasSubstr;

TEST(Driver, AbsentDriverIsOneLineWithARemedy) {
  if (available()) GTEST_SKIP() << "this machine has a GPU";
  ASSERT_TRUE(why_unavailable().has_value());
  EXPECT_EQ(why_unavailable()->find('\n'), std::string::npos);
  const std::string error = error_of([] { ContextGuard guard(kCuda0); });
  EXPECT_EQ(error, "ValueError: CUDA is not available: " + *why_unavailable());
}

TEST(Driver, OtherDevicesAreRefusedWithWhatThereIs) {
  const FakeDriver fake;
  EXPECT_EQ(error_of([] {
              ContextGuard guard({DeviceType::kCUDA, 7});
            }),
            "ValueError: there is no cuda:7: this process sees 2 CUDA devices");
  EXPECT_EQ(error_of([] {
              ContextGuard guard({DeviceType::kCUDA, -1});
            }),
            "ValueError: there is no cuda:-1: this process sees 2 CUDA devices");
  EXPECT_EQ(error_of([] { ContextGuard guard(kCpuDevice); }),
            "ValueError: cpu is not a CUDA device");
}

TEST(ContextGuard, BringsTheCallersContextBack) {
  const FakeDriver fake;
  EXPECT_EQ(current_device(), kCuda0);
  {
    const ContextGuard outer(kCuda1);
    EXPECT_EQ(current_device(), kCuda1);
    {
      const ContextGuard inner(kCuda0);
      EXPECT_EQ(current_device(), kCuda0);
    }
    EXPECT_EQ(current_device(), kCuda1);
  }
  abi::Context context = nullptr;
  driver().ctx_get_current(&context);
  EXPECT_EQ(context, nullptr);
}

TEST(ContextGuard, AThreadWithoutAContextKeepsThatOfDevice0) {
  FakeDriver fake;
  abi::Context inside = nullptr, after = nullptr;
  {
    const ContextGuard guard(kCuda0);
    driver().ctx_get_current(&inside);
  }
  driver().ctx_get_current(&after);
  EXPECT_NE(inside, nullptr);
  EXPECT_EQ(after, inside);
}

TEST(Setup, FactsOfAHopperDevice) {
  const FakeDriver fake;
  const DeviceFacts facts = facts_of(kCuda1);
  EXPECT_EQ(facts.archs, (std::vector<std::string>{"sm_90a", "sm_90"}));
  EXPECT_EQ(facts.name, "Fake H200");
  EXPECT_EQ(facts.num_processors, 132);
  EXPECT_EQ(facts.smem_bytes, 232448);
  EXPECT_EQ(facts.device, kCuda1);
}

TEST(Setup, InstallTouchesNoDriverAndKeepsAFrameworksAllocator) {
  install();
  EXPECT_EQ(&allocator_for(DeviceType::kCUDA), &stream_ordered_allocator());

  class Framework final : public Allocator {
    void* allocate(size_t, Stream) override { return nullptr; }
    void deallocate(void*, size_t, Stream) noexcept override {}
  } framework;
  set_allocator(DeviceType::kCUDA, &framework);
  install();
  EXPECT_EQ(&allocator_for(DeviceType::kCUDA), &framework);
  set_allocator(DeviceType::kCUDA, &stream_ordered_allocator());
}

TEST(Allocator, SaysHowMuchWasAskedForAndIsFree) {
  FakeDriver fake;
  fake.fail("mem_alloc_from_pool_async", abi::Result::kOutOfMemory);
  EXPECT_EQ(error_of([] {
              stream_ordered_allocator().allocate(512, {kCuda0, nullptr});
            }),
            "MemoryError: cuda:0: 512 bytes were asked for; 100 of 1000 are free; free tensors, or "
            "use a smaller call");
}

TEST(Allocator, GivesBackWhatItGave) {
  FakeDriver fake;
  void* data = stream_ordered_allocator().allocate(512, {kCuda1, nullptr});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0U);
  EXPECT_EQ(fake.live_allocations, 1);
  stream_ordered_allocator().deallocate(data, 512, {kCuda1, nullptr});
  release_cached_memory(kCuda1);
  EXPECT_EQ(fake.live_allocations, 0);
}

}  // namespace
}  // namespace tileops::cuda
