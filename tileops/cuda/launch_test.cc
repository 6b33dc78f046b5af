// SPDX-License-Identifier: Apache-2.0
// Launches as the driver sees them, and the errors of those that it refuses.
#include "tileops/cuda/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tileops/core/call_path.h"
#include "tileops/core/error_testing.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/event.h"
#include "tileops/cuda/fake_driver.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/setup.h"

namespace tileops::cuda {
namespace {

using ::testing::HasSubstr;

struct Params {
  int64_t rows;
  float scale;
};

struct LaunchTest : ::testing::Test {
  FakeDriver fake;
  Module module{"gemm sm90_tma", {std::vector<std::byte>(4), {"_Zgemm"}}, kCuda0};
  const Function& function = module.functions()[0];
};

TEST_F(LaunchTest, PassesArgumentsByValue) {
  const Params params{123, 0.5F};
  Params seen{};
  int seen_int = 0;
  fake.on_launch = [&](void** arguments) {
    seen = *static_cast<const Params*>(arguments[0]);
    seen_int = *static_cast<const int*>(arguments[1]);
  };
  launch(function, {.grid = {132}, .cta = {384}, .smem_bytes = 200000}, kStream, params, 7);
  EXPECT_EQ(seen.rows, 123);
  EXPECT_EQ(seen.scale, 0.5F);
  EXPECT_EQ(seen_int, 7);
  ASSERT_EQ(fake.launches.size(), 1U);
  const abi::LaunchConfig& config = fake.launches[0].config;
  EXPECT_EQ(config.grid_x, 132U);
  EXPECT_EQ(config.cta_x, 384U);
  EXPECT_EQ(config.dynamic_smem_bytes, 200000U);
  EXPECT_EQ(config.num_attributes, 0U);
}

TEST_F(LaunchTest, ClusterAndOverlapAreAttributes) {
  launch(function,
         {.grid = {132}, .cluster = {2}, .cta = {384}, .order = LaunchOrder::kOverlapPrevious},
         kStream, 1);
  const auto& attributes = fake.launches.at(0).attributes;
  ASSERT_EQ(attributes.size(), 2U);
  EXPECT_EQ(attributes[0].id, abi::LaunchAttributeId::kClusterDimension);
  EXPECT_EQ(attributes[0].value.cluster_dim.x, 2U);
  EXPECT_EQ(attributes[0].value.cluster_dim.z, 1U);
  EXPECT_EQ(attributes[1].id, abi::LaunchAttributeId::kProgrammaticStreamSerialization);
  EXPECT_EQ(attributes[1].value.programmatic_serialization, 1);
  EXPECT_EQ(max_resident_clusters(function, {.grid = {132}, .cluster = {2}, .cta = {384}}), 60);
}

TEST_F(LaunchTest, ShapesThatCannotBeAreNamed) {
  EXPECT_EQ(
      error_of([&] { launch(function, {.grid = {3}, .cluster = {2}, .cta = {1}}, kStream, 1); }),
      "RuntimeError: launching gemm sm90_tma on cuda:0 (grid 3x1x1, cluster 2x1x1, CTA 1x1x1, "
      "1024 + 0 bytes of shared memory): the grid must be a positive multiple of the cluster");
  EXPECT_THAT(error_of([&] { launch(function, {.grid = {0}, .cta = {1}}, kStream, 1); }),
              HasSubstr("the grid must be a positive multiple"));
  EXPECT_THAT(error_of([&] { launch(function, {.grid = {1}, .cta = {2048}}, kStream, 1); }),
              HasSubstr("the kernel was built for at most 1024 threads a CTA"));
  EXPECT_THAT(error_of([&] {
                launch(function, {.grid = {1}, .cta = {1}, .smem_bytes = 231425}, kStream, 1);
              }),
              HasSubstr("at most 231424 bytes of dynamic shared memory can be had"));
  EXPECT_EQ(error_of([&] {
              launch(function, {.grid = {1}, .cta = {1}}, {{DeviceType::kCUDA, 1}, nullptr}, 1);
            }),
            "ValueError: gemm sm90_tma: the kernel was loaded on cuda:0, and the stream is on "
            "cuda:1");
  EXPECT_TRUE(fake.launches.empty());
}

TEST_F(LaunchTest, RefusalNamesKernelStageAndRemedy) {
  fake.fail("launch_kernel_ex", abi::Result::kIllegalAddress);
  set_call_path_source([] { return std::string("fused_moe > gate_up"); });
  EXPECT_EQ(error_of([&] { launch(function, {.grid = {1}, .cta = {1}}, kStream, 1); }),
            "RuntimeError: launching gemm sm90_tma in fused_moe > gate_up on cuda:0 (grid 1x1x1, "
            "cluster 1x1x1, CTA 1x1x1, 1024 + 0 bytes of shared memory): "
            "CUDA_ERROR_ILLEGAL_ADDRESS (the driver's words); a kernel faulted, and the process "
            "can no longer use the device: run it again with TILEOPS_SYNC=1, which names the op "
            "and stage");
  set_call_path_source(nullptr);
}

TEST_F(LaunchTest, SynchronousLaunchesNameTheFault) {
  set_synchronous_launches(true);
  fake.fail("stream_synchronize", abi::Result::kIllegalAddress);
  set_call_path_source([] { return std::string("down"); });
  EXPECT_THAT(error_of([&] { launch(function, {.grid = {1}, .cta = {1}}, kStream, 1); }),
              HasSubstr("RuntimeError: running gemm sm90_tma in down on cuda:0"));
  fake.capturing = true;  // nothing can be waited for
  EXPECT_EQ(error_of([&] { launch(function, {.grid = {1}, .cta = {1}}, kStream, 1); }), "no error");
  set_synchronous_launches(false);
  set_call_path_source(nullptr);
}

TEST_F(LaunchTest, ModuleAllowsAllSharedMemoryAndUnloadsOnce) {
  EXPECT_EQ(fake.max_dynamic_smem, 232448 - 1024);
  {
    Module moved = std::move(module);
    EXPECT_EQ(moved.functions().size(), 1U);
    EXPECT_EQ(fake.num_unloaded, 0);
  }
  EXPECT_EQ(fake.num_unloaded, 1);
}

TEST_F(LaunchTest, CodeForAnotherDeviceIsABuildError) {
  fake.fail("module_load_data", abi::Result::kNoBinaryForGpu);
  EXPECT_EQ(error_of([] {
              Module("gemm", {std::vector<std::byte>(4), {}}, kCuda0);
            }),
            "BuildError: gemm: loading 4 bytes of machine code on cuda:0: "
            "CUDA_ERROR_NO_BINARY_FOR_GPU (the driver's words); NVRTC may be newer than the "
            "driver: name another with TILEOPS_NVRTC");
}

TEST(Copy, KeepsStridesBothWays) {
  const FakeDriver fake;
  install();
  const std::vector<double> values = {0, 1, 2, 3, 4, 5};
  const Tensor host = Tensor::from_values({2, 3}, DType::kI32, values).transpose(0, 1);
  const Tensor there = to_device(host, kCuda0);
  EXPECT_EQ(there.device(), kCuda0);
  EXPECT_EQ(there.strides(), host.strides());
  EXPECT_TRUE(to_device(there, kCuda0).is_same_view(there));
  const Tensor back = to_host(there);
  EXPECT_EQ(back.device(), kCpuDevice);
  EXPECT_EQ(back.at({2, 1}), 5);
  EXPECT_EQ(back.at({0, 1}), 3);
  EXPECT_EQ(to_host(Tensor::empty({0, 4}, DType::kF32, kCuda0)).num_elements(), 0);
}

TEST(Copy, RefusesToWaitInACapture) {
  FakeDriver fake;
  install();
  const Tensor there = Tensor::empty({4}, DType::kF32, kCuda0);
  fake.capturing = true;
  EXPECT_EQ(error_of([&] { to_host(there); }),
            "RuntimeError: copying between host and cuda:0 waits, which a stream capture does not "
            "allow");
  fake.capturing = false;
}

TEST(Graph, CapturesOnItsStreamAndEndsWhenWorkThrows) {
  FakeDriver fake;
  const OwnedStream stream(kCuda0);
  Stream seen;
  const Graph graph = Graph::capture(stream, [&] {
    seen = current_stream(kCuda0);
    EXPECT_TRUE(is_capturing(seen));
  });
  EXPECT_EQ(seen, stream.get());
  graph.replay(stream);
  EXPECT_EQ(fake.num_graph_launches, 1);
  EXPECT_EQ(
      error_of([&] { Graph::capture(stream, [] { throw Error(ErrorKind::kState, "inside"); }); }),
      "RuntimeError: inside");
  EXPECT_FALSE(fake.capturing);
}

TEST(Event, TimesInMicroseconds) {
  const FakeDriver fake;
  install();
  Event start(kCuda0);
  Event end(kCuda0);
  start.record(kStream);
  L2Flush(kCuda0).run(kStream);
  end.record(kStream);
  end.synchronize();
  start.block(kStream);
  EXPECT_DOUBLE_EQ(elapsed_us(start, end), 250);
}

}  // namespace
}  // namespace tileops::cuda
