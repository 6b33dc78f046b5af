// SPDX-License-Identifier: Apache-2.0
// Ranges of calls as a profiler gets them, from a library of NVTX's name that the test brings
// (LD_LIBRARY_PATH); NVTX_INJECTION64_PATH is set, as under a profiler.
#include "tileops/cuda/nvtx.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tileops/cuda/launch_batch.h"
#include "tileops/cuda/setup.h"

namespace tileops::cuda {
namespace {

TEST(Nvtx, CallsBecomeRanges) {
  install();
  const CallMarker* marker = call_marker();
  ASSERT_NE(marker, nullptr) << "a profiler watches";
  EXPECT_EQ(marker, nvtx_marker());
  void* before = dlopen("libnvtx3interop.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_EQ(before, nullptr) << "nothing is loaded before the first range";
  marker->begin("gate_up");
  void* library = dlopen("libnvtx3interop.so.1", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto* pushed = static_cast<const int*>(dlsym(library, "num_pushed"));
  ASSERT_NE(pushed, nullptr) << "another NVTX was found first";
  EXPECT_EQ(*pushed, 1);
  EXPECT_STREQ(*static_cast<const char**>(dlsym(library, "last_pushed")), "gate_up");
  const auto* popped = static_cast<const int*>(dlsym(library, "num_popped"));
  EXPECT_EQ(*popped, 0);
  marker->end();
  EXPECT_EQ(*popped, 1);
}

}  // namespace
}  // namespace tileops::cuda
