// SPDX-License-Identifier: Apache-2.0
// What the rows of all specs would launch on a GPU is what `tileops warm` builds and CI compiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "tileops/core/embedded.h"
#include "tileops/cuda/program.h"
#include "tileops/op/explain.h"
#include "tileops/op/op_class.h"
#include "tileops/ops/register.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"

namespace tileops {
namespace {

const DeviceFacts kHopper{.device = {DeviceType::kCUDA, 0},
                          .archs = {"sm_90a", "sm_90"},
                          .name = "a Hopper",
                          .num_processors = 132,
                          .smem_bytes = 227 << 10};

TEST(Programs, WhatRowsLaunchIsRegistered) {
  register_ops();
  const std::vector<cuda::ProgramSpec> registered = cuda::registered_programs();
  std::set<std::string> seen;
  for (const std::string& name : op_class_names()) {
    const auto entry = spec::entry(name);
    for (const spec::WorkloadCase& which : spec::workload_cases(*entry)) {
      SCOPED_TRACE(name + "/" + which.id);
      const auto op = op_class(name).make(which.params);
      const std::vector<Tensor> inputs = spec::make_meta_inputs(entry, which);
      std::vector<std::shared_ptr<Kernel>> kernels;
      try {
        kernels = kernels_for_call(*op, {inputs, {}}, kHopper);
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::kOpNotAvailable) << error.what();
      }
      for (const auto& kernel : kernels) {
        int num_programs = 0;
        kernel->list_programs([&](const cuda::ProgramSpec& program) {
          ++num_programs;
          seen.insert(program.name);
          EXPECT_NE(std::find(registered.begin(), registered.end(), program), registered.end())
              << program.name;
        });
        EXPECT_GT(num_programs, 0) << "a kernel of a GPU that names no program";
      }
    }
  }
  EXPECT_GT(seen.size(), 10U);
}

/// Otherwise only NVRTC would find it missing.
TEST(Programs, WhatDeviceCodeIncludesIsAPartOfTheLibrary) {
  std::set<std::string_view> embedded;
  for (const EmbeddedFile& file : embedded::device_files()) embedded.insert(file.path);
  constexpr std::string_view kInclude = "#include \"";
  const auto check = [&](std::string_view text, std::string_view where) {
    for (size_t at = text.find(kInclude); at != text.npos; at = text.find(kInclude, at)) {
      at += kInclude.size();
      const std::string_view path = text.substr(at, text.find('"', at) - at);
      EXPECT_TRUE(embedded.contains(path)) << where << " includes " << path;
    }
  };
  for (const EmbeddedFile& file : embedded::device_files()) check(file.text, file.path);
  for (const cuda::ProgramSpec& spec : cuda::registered_programs()) check(spec.source, spec.name);
  EXPECT_FALSE(embedded.empty());
}

}  // namespace
}  // namespace tileops
