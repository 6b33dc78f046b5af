// SPDX-License-Identifier: Apache-2.0
// The kernel cache in memory and on disk, over a fake compiler: threads, processes, damage.
#include "tileops/cuda/kernel_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tileops/core/cache_folder.h"
#include "tileops/core/error_testing.h"
#include "tileops/core/freeze.h"
#include "tileops/core/log.h"
#include "tileops/cuda/binary_format.h"
#include "tileops/cuda/fake_driver.h"
#include "tileops/cuda/fake_nvrtc.h"
#include "tileops/cuda/setup.h"

namespace tileops::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr Stream kOtherStream{{DeviceType::kCUDA, 1}, nullptr};

std::vector<std::string> warnings;

/// A fresh folder, a fake driver and a fake compiler for each case.
struct KernelCacheTest : ::testing::Test {
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tileops_cuda_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name + "/kernels";
    install();
    warnings.clear();
    set_warning_handler([](std::string_view text) { warnings.emplace_back(text); });
  }
  void TearDown() override {
    set_warning_handler(nullptr);
    fs::remove_all(fs::path(folder).parent_path());
  }

  KernelCache cache() const { return KernelCache({.headers = kHeaders, .folder = folder}); }
  std::vector<fs::path> files(const std::string& extension) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == extension) found.push_back(entry.path());
    }
    return found;
  }

  static constexpr EmbeddedFile kHeaders[] = {{"tileops/a.cuh", "text a"}};
  FakeDriver driver;
  FakeNvrtc nvrtc;
  std::string folder;
  ProgramSpec gemm{.name = "gemm sm90_tma", .source = "source", .kernels = {"gemm<1>", "gemm<2>"}};
  ProgramSpec broken{.name = "gemm broken", .source = "#error", .kernels = {"gemm<1>"}};
};

TEST_F(KernelCacheTest, BuildsOnceAndLoadsOnceADevice) {
  KernelCache kernels = cache();
  const Module& first = kernels.get(gemm, kStream);
  EXPECT_EQ(&kernels.get(gemm, kStream), &first);
  const Module& other = kernels.get(gemm, kOtherStream);
  EXPECT_NE(&other, &first);
  EXPECT_EQ(other.functions()[1].device, kOtherStream.device);
  EXPECT_EQ(nvrtc.num_compiled, 1);
  EXPECT_EQ(driver.loaded_images,
            std::vector<std::string>(2, "code of source --gpu-architecture=sm_90a --std=c++20"));
}

TEST_F(KernelCacheTest, EightThreadsShareOneBuild) {
  KernelCache kernels = cache();
  nvrtc.while_compiling = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  std::vector<const Module*> seen(8);
  {
    std::vector<std::jthread> threads;
    for (const Module*& module : seen) {
      threads.emplace_back([&] { module = &kernels.get(gemm, kStream); });
    }
  }
  EXPECT_EQ(nvrtc.num_compiled, 1);
  EXPECT_EQ(seen, std::vector<const Module*>(8, seen[0]));
}

TEST_F(KernelCacheTest, FailedBuildTellsItsLogOnceAndIsTriedAgain) {
  KernelCache kernels = cache();
  EXPECT_EQ(error_of([&] { kernels.get(broken, kStream); }),
            "BuildError: gemm broken: NVRTC 13.0 failed for sm_90a (NVRTC_ERROR_COMPILATION):\n"
            "line 1: #error of the source");
  EXPECT_EQ(error_of([&] { kernels.get(broken, kStream); }),
            "BuildError: gemm broken: NVRTC failed for sm_90a once more, with the log told before");
  EXPECT_EQ(nvrtc.num_compiled, 2);
  EXPECT_TRUE(files(".kernel").empty());
}

TEST_F(KernelCacheTest, SecondProcessReadsTheDisk) {
  cache().get(gemm, kStream);
  KernelCache later = cache();
  EXPECT_EQ(*later.binary(gemm, "sm_90a"), *cache().binary(gemm, "sm_90a"));
  EXPECT_EQ(later.binary(gemm, "sm_90a")->symbols,
            (std::vector<std::string>{"_Zgemm<1>", "_Zgemm<2>"}));
  EXPECT_EQ(nvrtc.num_compiled, 1);
  EXPECT_TRUE(files(".tmp").empty());
}

TEST_F(KernelCacheTest, KeyCoversAllThatChangesTheCode) {
  const KernelCache kernels = cache();
  const std::string key = kernels.disk_key(gemm, "sm_90a");
  EXPECT_EQ(key.size(), 32U);
  const auto changed = [&](auto change) {
    ProgramSpec spec = gemm;
    change(spec);
    return kernels.disk_key(spec, "sm_90a");
  };
  EXPECT_EQ(changed([](auto& s) { s.name = "another name"; }), key);
  EXPECT_NE(changed([](auto& s) { s.source += " "; }), key);
  EXPECT_NE(changed([](auto& s) { s.options = {"-G"}; }), key);
  EXPECT_NE(changed([](auto& s) { s.kernels = {"gemm<1>"}; }), key);
  EXPECT_NE(changed([](auto& s) { s.kernels = {"gemm<1>gemm<2>"}; }), key);
  EXPECT_NE(kernels.disk_key(gemm, "sm_100a"), key);
  constexpr EmbeddedFile kOther[] = {{"tileops/a.cuh", "text b"}};
  EXPECT_NE(KernelCache({.headers = kOther}).disk_key(gemm, "sm_90a"), key);
  nvrtc.minor_version = 1;
  EXPECT_NE(kernels.disk_key(gemm, "sm_90a"), key);
}

TEST_F(KernelCacheTest, DamagedFilesAreBuiltAnew) {
  const Binary good = *cache().binary(gemm, "sm_90a");
  const fs::path file = files(".kernel").at(0);
  std::string whole(fs::file_size(file), '\0');
  std::ifstream(file, std::ios::binary)
      .read(whole.data(), static_cast<std::streamsize>(whole.size()));

  std::vector<std::string> damaged = {"", "tileops kernel 1\n", whole + "x"};
  for (size_t length = 0; length < whole.size(); length += 7) {
    damaged.push_back(whole.substr(0, length));
    damaged.push_back(whole);
    damaged.back()[length] ^= 1;
  }
  int expected = nvrtc.num_compiled;
  for (const std::string& content : damaged) {
    std::ofstream(file, std::ios::binary) << content;
    EXPECT_EQ(*cache().binary(gemm, "sm_90a"), good);
    EXPECT_EQ(nvrtc.num_compiled, ++expected);
  }
  EXPECT_EQ(*cache().binary(gemm, "sm_90a"), good);
  EXPECT_EQ(nvrtc.num_compiled, expected);
}

TEST_F(KernelCacheTest, FileOfAnotherKeyIsNotTaken) {
  const Binary binary{{std::byte{1}}, {"_Zk"}};
  const std::string file = encode_binary("key", binary);
  EXPECT_EQ(decode_binary("key", file), binary);
  EXPECT_EQ(decode_binary("yek", file), std::nullopt);
}

TEST_F(KernelCacheTest, FolderThatCannotBeWrittenIsToldOnce) {
  std::ofstream(folder) << "a file where the folder should be";
  KernelCache kernels = cache();
  kernels.get(gemm, kStream);
  ProgramSpec other = gemm;
  other.source = "another source";
  kernels.get(other, kStream);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("kernels cannot be kept in " + folder));
  EXPECT_THAT(warnings[0], HasSubstr("TILEOPS_CACHE_DIR"));
  EXPECT_EQ(nvrtc.num_compiled, 2);
}

TEST_F(KernelCacheTest, WithoutAFolderMemoryAlone) {
  KernelCache kernels({.headers = kHeaders});
  kernels.get(gemm, kStream);
  kernels.get(gemm, kStream);
  EXPECT_EQ(nvrtc.num_compiled, 1);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(KernelCacheTest, ManyProcessesBuildOnce) {
  const std::string builds = fs::path(folder).parent_path() / "builds";
  nvrtc.while_compiling = [&] {
    std::ofstream(builds, std::ios::app) << "x";
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool good = cache().binary(gemm, "sm_90a")->symbols.size() == 2;
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(fs::file_size(builds), 1U);
}

TEST_F(KernelCacheTest, KilledBuilderHarmsNobody) {
  const pid_t child = ::fork();
  if (child == 0) {
    nvrtc.while_compiling = [] { ::raise(SIGKILL); };
    cache().binary(gemm, "sm_90a");
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(cache().binary(gemm, "sm_90a")->symbols.size(), 2U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(files(".kernel").size(), 1U);
}

TEST_F(KernelCacheTest, StaleTemporaryFilesAreSwept) {
  fs::create_directories(folder);
  const fs::path stale = fs::path(folder) / "k.kernel.abcdef.tmp";
  const fs::path young = fs::path(folder) / "k.kernel.ghijkl.tmp";
  std::ofstream(stale) << "half";
  std::ofstream(young) << "half";
  fs::last_write_time(stale, fs::file_time_type::clock::now() - std::chrono::hours(48));
  cache().binary(gemm, "sm_90a");
  EXPECT_EQ(files(".tmp"), std::vector<fs::path>{young});
}

TEST_F(KernelCacheTest, FreezeEndsBuildingAndNamesTheKernel) {
  KernelCache kernels = cache();
  kernels.get(gemm, kStream);
  freeze();
  kernels.get(gemm, kStream);
  ProgramSpec other = gemm;
  other.name = "gemm sm90_swap";
  other.source = "another source";
  EXPECT_EQ(error_of([&] { kernels.get(other, kStream); }),
            "BuildError: gemm sm90_swap: not built for sm_90a, and building was ended by freeze(); "
            "build it ahead with `tileops warm`, or call it once before freeze()");
  thaw();
  cache().binary(other, "sm_90a");  // another process builds it: reading it is no build
  freeze();
  EXPECT_EQ(error_of([&] { kernels.get(other, kStream); }), "no error");
  thaw();
}

TEST_F(KernelCacheTest, CaptureAllowsNoBuildAndNamesTheKernel) {
  KernelCache kernels = cache();
  driver.capturing = true;
  EXPECT_EQ(error_of([&] { kernels.get(gemm, kStream); }),
            "BuildError: gemm sm90_tma: not loaded on cuda:0 yet, and a stream capture allows no "
            "building: make one warm call before capturing");
  driver.capturing = false;
  kernels.get(gemm, kStream);
  driver.capturing = true;
  EXPECT_EQ(error_of([&] { kernels.get(gemm, kStream); }), "no error");
}

TEST_F(KernelCacheTest, WarmBuildsAllAndTellsTheFirstFailureLast) {
  KernelCache kernels = cache();
  std::vector<ProgramSpec> specs = {broken};
  for (const char* source : {"a", "b", "c"}) {
    specs.push_back({.name = source, .source = source, .kernels = {"k"}});
  }
  specs.push_back(specs[1]);
  int built = 0;
  int found = 0;
  EXPECT_THAT(error_of([&] {
                kernels.warm(specs, "sm_90a", 3,
                             [&](const ProgramSpec&, bool fresh) { ++(fresh ? built : found); });
              }),
              HasSubstr("gemm broken: NVRTC 13.0 failed"));
  EXPECT_EQ(built, 3);
  EXPECT_EQ(found, 1);
  EXPECT_EQ(files(".kernel").size(), 3U);
}

TEST(CacheFolder, FollowsTheEnvironment) {
  ::setenv("HOME", "/h", 1);
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("TILEOPS_CACHE_DIR");
  EXPECT_EQ(cache_folder(), "/h/.cache/tileops");
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(cache_folder(), "/x/tileops");
  ::setenv("TILEOPS_CACHE_DIR", "/t", 1);
  EXPECT_EQ(cache_folder(), "/t");
  ::unsetenv("TILEOPS_CACHE_DIR");
}

TEST(Programs, EachIsListedOnceInAFixedOrder) {
  register_programs("z sm90", [] {
    return std::vector<ProgramSpec>{{.name = "shared"}, {.name = "z"}};
  });
  register_programs("a sm90", [] {
    return std::vector<ProgramSpec>{{.name = "a"}, {.name = "shared"}};
  });
  std::vector<std::string> names;
  for (const ProgramSpec& spec : registered_programs()) names.push_back(spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "shared", "z"}));
}

}  // namespace
}  // namespace tileops::cuda
