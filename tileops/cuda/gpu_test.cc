// SPDX-License-Identifier: Apache-2.0
// The host half on a real Hopper GPU, from text to results; skips where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include "tileops/core/call_path.h"
#include "tileops/core/error_testing.h"
#include "tileops/cuda/allocator.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/copy.h"
#include "tileops/cuda/driver.h"
#include "tileops/cuda/event.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/kernel_cache.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/nvrtc.h"
#include "tileops/cuda/setup.h"
#include "tileops/cuda/tensor_map.h"

namespace tileops::cuda {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr Device kCuda0{DeviceType::kCUDA, 0};

constexpr EmbeddedFile kHeaders[] = {{"tileops/test/kernels.cuh", R"(
#pragma once
struct alignas(64) TensorMap { unsigned long long opaque[16]; };
struct Params { float* data; int n; float value; };

/// data[i] += value, after the kernel before it; the cluster's size goes to data[n].
__global__ void add(Params p) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
  unsigned cluster;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(cluster));
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) p.data[i] += p.value;
  if (i == 0) p.data[p.n] = cluster;
}

/// Copies the box at (x, y) of a map of floats to out by TMA; one CTA of 32 threads.
__global__ void load_box(const __grid_constant__ TensorMap map, int x, int y, float* out, int n) {
  extern __shared__ __align__(128) float box[];
  __shared__ unsigned long long barrier;
  const unsigned bar = __cvta_generic_to_shared(&barrier);
  const unsigned smem = __cvta_generic_to_shared(box);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(n * 4));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3}], [%4];" ::"r"(smem), "l"(&map), "r"(x), "r"(y), "r"(bar) : "memory");
  }
  __syncthreads();
  unsigned done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(bar) : "memory");
  }
  for (int i = threadIdx.x; i < n; i += 32) out[i] = box[i];
}

__global__ void write_anywhere(float* data) { *data = 1; }
)"}};

struct Params {
  float* data;
  int n;
  float value;
};

ProgramSpec program() {
  return {.name = "test kernels",
          .source = "#include \"tileops/test/kernels.cuh\"\n",
          .kernels = {"add", "load_box", "write_anywhere"}};
}

struct GpuTest : ::testing::Test {
  void SetUp() override {
    if (const auto reason = why_unavailable()) GTEST_SKIP() << *reason;
    if (const auto reason = why_nvrtc_unavailable()) GTEST_SKIP() << *reason;
    if (facts_of(kCuda0).archs.front() != "sm_90a") GTEST_SKIP() << "the GPU is no Hopper";
    install();
    folder = (fs::temp_directory_path() / ("tileops_gpu_" + std::to_string(::getpid()))).string();
  }
  void TearDown() override { fs::remove_all(folder); }

  KernelCache cache() const { return KernelCache({.headers = kHeaders, .folder = folder}); }
  static Tensor iota(const Shape& shape) {
    std::vector<double> values(static_cast<size_t>(num_elements(shape)));
    std::iota(values.begin(), values.end(), 0);
    return to_device(Tensor::from_values(shape, DType::kF32, values), kCuda0);
  }

  std::string folder;
};

TEST_F(GpuTest, FactsArePlausible) {
  const DeviceFacts facts = facts_of(kCuda0);
  EXPECT_GE(facts.num_processors, 64);
  EXPECT_EQ(facts.smem_bytes, 232448);
  EXPECT_GE(l2_bytes(kCuda0), 32 << 20);
  EXPECT_EQ(error_of([] {
              facts_of({DeviceType::kCUDA, 63});
            }).substr(0, 32),
            "ValueError: there is no cuda:63:");
}

TEST_F(GpuTest, ClustersAndOverlappedLaunchesComputeAndReplayInAGraph) {
  KernelCache kernels = cache();
  const OwnedStream stream(kCuda0);
  const Function& add = kernels.get(program(), stream).functions()[0];
  EXPECT_GT(add.num_registers, 0);
  const Tensor data = iota({1025});
  const Params params{data.data_as<float>(), 1024, 0.5F};
  const LaunchShape shape{
      .grid = {8}, .cluster = {2}, .cta = {128}, .order = LaunchOrder::kOverlapPrevious};
  EXPECT_GE(max_resident_clusters(add, shape), 8);
  for (int i = 0; i < 4; ++i) launch(add, shape, stream, params);
  const Graph graph = Graph::capture(stream, [&] {
    for (int i = 0; i < 4; ++i) launch(add, shape, current_stream(kCuda0), params);
  });
  graph.replay(stream);
  graph.replay(stream);
  synchronize(stream);
  const Tensor host = to_host(data);
  EXPECT_EQ(host.at({0}), 6);
  EXPECT_EQ(host.at({1023}), 1029);
  EXPECT_EQ(host.at({1024}), 2) << "CTAs of a cluster";
}

TEST_F(GpuTest, TensorsMadeInACaptureLiveThroughReplays) {
  const OwnedStream stream(kCuda0);
  {
    Tensor made;
    const Graph graph = Graph::capture(stream, [&] {
      made = Tensor::empty({1000}, DType::kU8, kCuda0);
      fill_bytes(made.data(), 9, 1000, stream);
    });
    for (int i = 0; i < 3; ++i) {
      graph.replay(stream);
      synchronize(stream);
      EXPECT_EQ(to_host(made).at({999}), 9);
    }
  }
  synchronize(stream);
}

TEST_F(GpuTest, TensorMapLoadsItsBox) {
  const Tensor matrix = iota({64, 32});
  TensorMap map;
  // On a thread without a context.
  std::thread([&] {
    map = encode_tensor_map({.data = matrix.data(),
                             .dtype = DType::kF32,
                             .swizzle = Swizzle::kNone,
                             .dims = {32, 64},
                             .strides = {32},
                             .box = {8, 4}},
                            kCuda0);
  }).join();
  KernelCache kernels = cache();
  const Stream stream = current_stream(kCuda0);
  const Tensor out = iota({32});
  launch(kernels.get(program(), stream).functions()[1],
         {.grid = {1}, .cta = {32}, .smem_bytes = 200 << 10}, stream, map, 4, 62,
         out.data_as<float>(), 32);
  const Tensor host = to_host(out);
  EXPECT_EQ(host.at({0}), 62 * 32 + 4);
  EXPECT_EQ(host.at({15}), 63 * 32 + 11);
  EXPECT_EQ(host.at({16}), 0) << "rows beyond the tensor read as zero";
}

TEST_F(GpuTest, WarmDiskCacheIsQuick) {
  const auto milliseconds = [&] {
    const auto start = std::chrono::steady_clock::now();
    KernelCache kernels = cache();
    kernels.get(program(), current_stream(kCuda0));
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  };
  const double cold = milliseconds();
  const double warm = milliseconds();
  RecordProperty("cold_ms", std::to_string(cold));
  RecordProperty("warm_ms", std::to_string(warm));
  EXPECT_LT(cold, 1500);
  EXPECT_LT(warm, 20);
}

TEST_F(GpuTest, AllocatorServesAndSaysWhatIsFree) {
  EXPECT_THAT(error_of([] { Tensor::empty({int64_t{1} << 42}, DType::kU8, kCuda0); }),
              HasSubstr("MemoryError: cuda:0: 4398046511104 bytes were asked for; "));
  const Tensor tensor = Tensor::empty({1 << 20}, DType::kU8, kCuda0);
  fill_bytes(tensor.data(), 7, 1 << 20, current_stream(kCuda0));
  EXPECT_EQ(to_host(tensor).at({(1 << 20) - 1}), 7);
  release_cached_memory(kCuda0);
}

TEST_F(GpuTest, EventsTimeAColdL2) {
  const Stream stream = current_stream(kCuda0);
  const L2Flush flush(kCuda0);
  Event start(kCuda0);
  Event end(kCuda0);
  flush.run(stream);
  start.record(stream);
  flush.run(stream);
  end.record(stream);
  end.synchronize();
  EXPECT_GT(elapsed_us(start, end), 5);
  EXPECT_LT(elapsed_us(start, end), 5000);
}

TEST_F(GpuTest, AFirstBuildInACaptureIsNamedAndEndsTheCapture) {
  KernelCache kernels = cache();
  const OwnedStream stream(kCuda0);
  EXPECT_THAT(error_of([&] {
                Graph::capture(stream, [&] { kernels.get(program(), current_stream(kCuda0)); });
              }),
              HasSubstr("BuildError: test kernels: not loaded on cuda:0 yet"));
  EXPECT_FALSE(is_capturing(stream));
}

/// In a process of its own: a fault takes the context with it.
using GpuDeathTest = GpuTest;
TEST_F(GpuDeathTest, SynchronousLaunchesNameTheFault) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        set_synchronous_launches(true);
        KernelCache kernels = cache();
        const Stream stream = current_stream(kCuda0);
        set_call_path_source([] { return std::string("gate_up"); });
        const std::string error = error_of([&] {
          launch(kernels.get(program(), stream).functions()[2], {.grid = {1}, .cta = {1}}, stream,
                 static_cast<float*>(nullptr));
        });
        std::fputs(error.c_str(), stderr);
        ::_exit(3);
      },
      ::testing::ExitedWithCode(3), "running test kernels in gate_up on cuda:0 .*ILLEGAL_ADDRESS");
}

}  // namespace
}  // namespace tileops::cuda
