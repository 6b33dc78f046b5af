// SPDX-License-Identifier: Apache-2.0
// Finding NVRTC, compiling with it where it is installed, and judging builds.
#include "tileops/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tileops/core/error_testing.h"
#include "tileops/cuda/build_report.h"
#include "tileops/cuda/nvrtc_search.h"

namespace tileops::cuda {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr EmbeddedFile kHeaders[] = {{"tileops/test/scale.cuh", R"(
#pragma once
namespace test {
template <int kFactor>
__global__ void scale(float* data) { data[threadIdx.x] *= kFactor; }
__global__ void spill(float* data, const int* order) {
  float local[512];
  for (int i = 0; i < 512; ++i) local[i] = data[i];
  for (int i = 0; i < 512; ++i) data[i] = local[order[i]];
}
}
)"}};

ProgramSpec scale_spec() {
  return {.name = "scale",
          .source = "#include \"tileops/test/scale.cuh\"\n",
          .kernels = {"test::scale<3>"}};
}

TEST(NvrtcSearch, LooksBesideLoadedLibrariesAndInPipsFolders) {
  std::string name = (fs::temp_directory_path() / "tileops_nvrtc_XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const fs::path site(name);
  const auto touch = [&](const std::string& path) {
    fs::create_directories((site / path).parent_path());
    std::ofstream(site / path) << "library";
  };
  touch("nvidia/cu13/lib/libnvrtc.so.13");
  touch("nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  touch("torch/lib/libtorch_cuda.so");
  touch("nvidia/cuda_runtime/lib/libcudart.so.12");

  const auto in_site = [&](const std::vector<std::string>& loaded) {
    std::vector<std::string> found;
    for (const std::string& candidate : nvrtc_candidates(loaded)) {
      if (candidate.starts_with(name)) found.push_back(candidate.substr(name.size() + 1));
    }
    return found;
  };
  const std::vector<std::string> both = {"nvidia/cu13/lib/libnvrtc.so.13",
                                         "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"};
  EXPECT_EQ(in_site({name + "/torch/lib/libtorch_cuda.so"}), both);
  EXPECT_EQ(in_site({name + "/nvidia/cuda_runtime/lib/libcudart.so.12"}), both);
  EXPECT_THAT(in_site({name + "/torch/lib/libother.so"}), IsEmpty());
  EXPECT_EQ(nvrtc_candidates({}).front(), "libnvrtc.so.13");
  EXPECT_THAT(loaded_libraries(), Contains(HasSubstr("libc.so")));
  fs::remove_all(site);
}

TEST(BuildReport, ReadsPtxasReport) {
  constexpr std::string_view kLog =
      "ptxas info    : 146 bytes gmem\n"
      "ptxas info    : Compiling entry function '_Z1av' for 'sm_90a'\n"
      "ptxas info    : Function properties for _Z1av\n"
      "ptxas         .     48 bytes stack frame, 44 bytes spill stores, 40 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 16 barriers, 1024 bytes smem\n"
      "ptxas info    : Compiling entry function '_Z1bv' for 'sm_90a'\n"
      "ptxas info    : Used 12 registers, used 0 barriers\n";
  EXPECT_EQ(parse_ptxas_log(kLog),
            (std::vector<KernelResources>{{.symbol = "_Z1av",
                                           .num_registers = 168,
                                           .num_barriers = 16,
                                           .static_smem_bytes = 1024,
                                           .stack_bytes = 48,
                                           .spill_store_bytes = 44,
                                           .spill_load_bytes = 40},
                                          {.symbol = "_Z1bv", .num_registers = 12}}));
  EXPECT_THAT(parse_ptxas_log(""), IsEmpty());
}

TEST(BuildReport, CountsWgmmaOfOneKernel) {
  constexpr std::string_view kPtx =
      ".visible .entry _Z1a(\n wgmma.mma_async.x; wgmma.mma_async.y;\n"
      ".visible .entry _Z1b(\n wgmma.fence; \n";
  EXPECT_EQ(count_wgmma(kPtx, "_Z1a"), 2);
  EXPECT_EQ(count_wgmma(kPtx, "_Z1b"), 0);
  EXPECT_EQ(count_wgmma(kPtx, "_Z1c"), 0);
}

/// With the compiler itself; needs no GPU.
struct NvrtcTest : ::testing::Test {
  void SetUp() override {
    if (const auto reason = why_nvrtc_unavailable()) GTEST_SKIP() << *reason;
  }
};

TEST_F(NvrtcTest, CompilesEmbeddedTextToMachineCode) {
  const ProgramSpec spec = scale_spec();
  const CompiledProgram compiled = compile(
      {.name = spec.name, .source = spec.source, .headers = kHeaders, .kernels = spec.kernels});
  ASSERT_GT(compiled.cubin.size(), 4U);
  EXPECT_EQ(static_cast<char>(compiled.cubin[1]), 'E');  // ELF
  EXPECT_THAT(compiled.symbols.at(0), HasSubstr("scaleILi3E"));
  EXPECT_EQ(compiled.log, "");
}

TEST_F(NvrtcTest, CompilesOnSeveralThreads) {
  std::vector<std::string> symbols(6);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < symbols.size(); ++i) {
      threads.emplace_back([&symbols, i] {
        ProgramSpec spec = scale_spec();
        const std::vector<std::string> kernels = {"test::scale<" + std::to_string(i + 10) + ">"};
        symbols[i] =
            compile(
                {.name = spec.name, .source = spec.source, .headers = kHeaders, .kernels = kernels})
                .symbols.at(0);
      });
    }
  }
  for (size_t i = 0; i < symbols.size(); ++i) {
    EXPECT_THAT(symbols[i], HasSubstr("scaleILi" + std::to_string(i + 10) + "E"));
  }
}

TEST_F(NvrtcTest, FailureCarriesTheWholeLog) {
  const std::vector<std::string> kernels = {"test::scale<3>"};
  const std::string error = error_of([&] {
    compile({.name = "gemm sm90", .source = "int x = y;\nint z = w;\n", .kernels = kernels});
  });
  EXPECT_THAT(error, HasSubstr("BuildError: gemm sm90: NVRTC " + nvrtc_version() +
                               " failed for sm_90a (NVRTC_ERROR_COMPILATION):\n"));
  EXPECT_THAT(error, HasSubstr("identifier \"y\" is undefined"));
  EXPECT_THAT(error, HasSubstr("identifier \"w\" is undefined"));
}

TEST_F(NvrtcTest, CleanBuildHasNoFault) {
  const ProgramSpec spec = scale_spec();
  const BuildReport report = report_build(spec, kHeaders);
  EXPECT_THAT(report.faults, IsEmpty());
  ASSERT_EQ(report.kernels.size(), 1U);
  EXPECT_GT(report.kernels[0].num_registers, 0);
  EXPECT_THAT(to_string(spec, report), HasSubstr("test::scale<3>"));
}

TEST_F(NvrtcTest, LocalMemoryAndMissingWgmmaAreFaults) {
  ProgramSpec spec = scale_spec();
  spec.kernels = {"test::spill"};
  spec.uses_wgmma = true;
  const BuildReport report = report_build(spec, kHeaders);
  ASSERT_EQ(report.faults.size(), 2U) << to_string(spec, report);
  EXPECT_THAT(report.faults[0], HasSubstr("bytes of local memory a thread"));
  EXPECT_EQ(report.faults[1], "a matrix kernel without wgmma");
}

TEST_F(NvrtcTest, SpillsAreFaults) {
  ProgramSpec spec = scale_spec();
  spec.name = "spilling";
  spec.source = R"(
__global__ void __launch_bounds__(1024, 2) spilling(float* data) {
  float v[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = data[i * 1024 + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 64; ++i) data[i * 1024 + threadIdx.x] = v[i] * v[(i + 7) % 64] + v[63 - i];
})";
  spec.kernels = {"spilling"};
  const BuildReport report = report_build(spec, {});
  ASSERT_FALSE(report.faults.empty()) << to_string(spec, report);
  EXPECT_THAT(report.faults[0], HasSubstr("spills: "));
}

}  // namespace
}  // namespace tileops::cuda
