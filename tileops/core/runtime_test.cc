// SPDX-License-Identifier: Apache-2.0
// Devices, streams, allocators, the log and error kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tileops/core/allocator.h"
#include "tileops/core/error_testing.h"
#include "tileops/core/log.h"
#include "tileops/core/tensor.h"

namespace tileops {
namespace {

constexpr Device kCuda0{DeviceType::kCUDA, 0};
constexpr Device kCuda1{DeviceType::kCUDA, 1};

void* handle(uintptr_t value) { return reinterpret_cast<void*>(value); }

TEST(Device, TextGoesBothWays) {
  for (const char* text : {"cpu", "meta", "cuda:0", "cuda:17"}) {
    EXPECT_EQ(to_string(parse_device(text)), text);
  }
  EXPECT_EQ(parse_device("cuda"), kCuda0);
  for (const char* text :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:9999999999"}) {
    EXPECT_EQ(
        error_of([&] { parse_device(text); }),
        "ValueError: device must be cpu, meta, cuda or cuda:N, got '" + std::string(text) + "'");
  }
}

TEST(Stream, TheInnermostGuardOfTheDeviceHolds) {
  EXPECT_EQ(current_stream(kCuda0), (Stream{kCuda0, nullptr}));
  {
    StreamGuard outer({kCuda0, handle(1)});
    StreamGuard other({kCuda1, handle(2)});
    EXPECT_EQ(current_stream(kCuda0).handle, handle(1));
    {
      StreamGuard inner({kCuda0, handle(3)});
      EXPECT_EQ(current_stream(kCuda0).handle, handle(3));
      EXPECT_EQ(current_stream(kCuda1).handle, handle(2));
      std::thread([] { EXPECT_EQ(current_stream(kCuda0).handle, nullptr); }).join();
    }
    EXPECT_EQ(current_stream(kCuda0).handle, handle(1));
  }
  EXPECT_EQ(current_stream(kCuda1).handle, nullptr);
}

/// Counts, hands out memory of its own, and fails when told to.
class CountingAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, Stream stream) override {
    if (fails) throw Error(ErrorKind::kOutOfMemory, "told to fail");
    allocated_bytes += bytes;
    last_stream = stream;
    return std::malloc(bytes);
  }
  void deallocate(void* data, size_t bytes, Stream stream) noexcept override {
    freed_bytes += bytes;
    last_stream = stream;
    std::free(data);
  }
  bool fails = false;
  size_t allocated_bytes = 0, freed_bytes = 0;
  Stream last_stream;
};

class AllocatorTest : public ::testing::Test {
 protected:
  ~AllocatorTest() override {
    set_allocator(DeviceType::kCPU, nullptr);
    set_allocator(DeviceType::kCUDA, nullptr);
  }
};

TEST_F(AllocatorTest, CpuMemoryIsAlignedTo64Bytes) {
  for (const int64_t size : {1, 3, 63, 64, 65, 4097}) {
    const Tensor tensor = Tensor::empty({size}, DType::kU8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 64, 0u);
  }
}

TEST_F(AllocatorTest, OutOfMemoryNamesTheBytes) {
  EXPECT_EQ(error_of([] { Tensor::empty({int64_t{1} << 58}, DType::kF32); }),
            "MemoryError: cpu: 1152921504606846976 bytes were asked for, and there is not so much "
            "memory");
  EXPECT_EQ(error_of([] { allocator_for(DeviceType::kCPU).allocate(SIZE_MAX, {}); }),
            "MemoryError: cpu: 18446744073709551615 bytes were asked for, and there is not so much "
            "memory");
}

TEST_F(AllocatorTest, IsReplacedAndBroughtBack) {
  CountingAllocator counting;
  EXPECT_EQ(set_allocator(DeviceType::kCPU, &counting), nullptr);
  {
    const Tensor tensor = Tensor::empty({3}, DType::kI16);
    const Tensor none = Tensor::empty({0}, DType::kI16);
    EXPECT_EQ(counting.allocated_bytes, 6u);
    EXPECT_EQ(set_allocator(DeviceType::kCPU, nullptr), &counting);
  }
  EXPECT_EQ(counting.freed_bytes, 6u);
  const Tensor builtin = Tensor::empty({3}, DType::kI16);
  EXPECT_EQ(counting.allocated_bytes, 6u);
}

TEST_F(AllocatorTest, AFailureReachesTheCaller) {
  CountingAllocator counting;
  counting.fails = true;
  set_allocator(DeviceType::kCPU, &counting);
  EXPECT_EQ(error_of([] { Tensor::empty({3}, DType::kI16); }), "MemoryError: told to fail");
  EXPECT_TRUE(Tensor::empty({0}, DType::kI16).defined());
}

TEST_F(AllocatorTest, CudaHasNoneUntilOneIsSetAndMemoryGoesBackOnItsStream) {
  EXPECT_EQ(error_of([] { Tensor::empty({3}, DType::kI16, kCuda1); }),
            "ValueError: cuda: no allocator is set, because no tensor on cuda was used yet");
  CountingAllocator counting;
  set_allocator(DeviceType::kCUDA, &counting);
  Tensor tensor;
  {
    StreamGuard guard({kCuda1, handle(5)});
    tensor = Tensor::empty({3}, DType::kI16, kCuda1);
  }
  EXPECT_EQ(to_string(tensor), "int16[3] on cuda:1");
  counting.last_stream = {};
  tensor = {};
  EXPECT_EQ(counting.last_stream, (Stream{kCuda1, handle(5)}));
}

TEST_F(AllocatorTest, MetaHasNone) {
  const std::string text =
      "ValueError: meta tensors have no storage, so the meta device has no allocator";
  EXPECT_EQ(error_of([] { allocator_for(DeviceType::kMeta); }), text);
  EXPECT_EQ(error_of([] { set_allocator(DeviceType::kMeta, nullptr); }), text);
}

TEST(Log, TheEnvironmentChoosesWhatIsTold) {
  const auto child = [] {
    ::setenv("TILEOPS_LOG", "dispatch,,noise,target", 1);
    const bool is_right = log_on(Log::kDispatch) && log_on(Log::kTarget) && !log_on(Log::kBuild) &&
                          !log_on(Log::kExec);
    log_line(Log::kDispatch, "op=gemm");
    std::exit(is_right ? 0 : 1);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0),
              "tileops warning: TILEOPS_LOG: 'noise' is not one of dispatch, build, exec, target\n"
              "tileops dispatch: op=gemm\n");
}

TEST(Log, IsSilentByDefault) {
  const auto child = [] {
    ::unsetenv("TILEOPS_LOG");
    const bool is_on =
        log_on(Log::kDispatch) || log_on(Log::kBuild) || log_on(Log::kExec) || log_on(Log::kTarget);
    std::exit(is_on ? 1 : 0);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "^$");
}

TEST(Warning, GoesToTheHandlerWhichMayThrow) {
  const WarningHandler builtin = set_warning_handler(
      [](std::string_view text) { throw Error(ErrorKind::kState, std::string(text)); });
  EXPECT_EQ(error_of([] { warn("slow"); }), "RuntimeError: slow");
  set_warning_handler(nullptr);
  ::testing::internal::CaptureStderr();
  warn("slow");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "tileops warning: slow\n");
  EXPECT_EQ(set_warning_handler(builtin), builtin);
}

TEST(Error, KindsAreNamedAsUsersSeeThem) {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(ErrorKind::kInternal); ++i) {
    names.emplace_back(error_kind_name(static_cast<ErrorKind>(i)));
  }
  EXPECT_THAT(names, ::testing::ElementsAre(
                         "ValueError", "TypeError", "ValueError", "TypeError", "ValueError",
                         "RuntimeError", "RuntimeError", "OpNotAvailableError",
                         "AmbiguousSelectionError", "AmbiguousTargetError", "BackendError",
                         "SpecError", "BuildError", "OSError", "MemoryError", "RuntimeError"));
}

}  // namespace
}  // namespace tileops
