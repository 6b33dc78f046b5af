// SPDX-License-Identifier: Apache-2.0
// Which Hopper kernel serves which call, and why not the other; needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tileops/core/error_testing.h"
#include "tileops/cuda/program.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"

namespace tileops {
namespace {

using grouped_gemm::Call;
using grouped_gemm::GroupedGemm;
using ::testing::HasSubstr;

constexpr Device kCuda0{DeviceType::kCUDA, 0};
const DeviceFacts kHopper{.device = kCuda0, .archs = {"sm_90a", "sm_90"}, .name = "H200"};
const DeviceFacts kAmpere{.device = kCuda0, .archs = {"sm_80"}, .name = "A100"};

Call fitting_call() {
  return {.device = kCuda0, .num_rows = 512, .num_experts = 8, .n = 256, .k = 128};
}

EntryKey key_of(const Call& call, const std::string& forced = "") {
  const MoEGroupedGemmFwdOp op(call.layout, call.activation, {}, {.implementation = forced});
  return op.key_for<GroupedGemm>(call, kHopper);
}

TEST(GroupedGemmSm90, TmaServesWhatFitsAndAnyStridesTheRest) {
  EXPECT_EQ(key_of(fitting_call()).implementation, "sm90_weights_on_m");
  Call odd = fitting_call();
  odd.k = 127;
  EXPECT_EQ(key_of(odd).implementation, "sm90_strided");
  EXPECT_EQ(key_of(fitting_call(), "sm90_strided").implementation, "sm90_strided");
}

TEST(GroupedGemmSm90, RefusalsSayWhatIsNeededAndWhatWasFound) {
  const auto refused = [](const auto& change) {
    Call call = fitting_call();
    change(call);
    return error_of([&] { key_of(call, "sm90_weights_on_m"); });
  };
  EXPECT_THAT(refused([](Call& c) { c.k = 127; }),
              HasSubstr("needs K in multiples of 8, found 127"));
  EXPECT_THAT(refused([](Call& c) { c.k = 0; }), HasSubstr("needs K in multiples of 8, found 0"));
  EXPECT_THAT(refused([](Call& c) { c.n = 252; }), HasSubstr("in multiples of 8, found 252"));
  EXPECT_THAT(refused([](Call& c) {
                c.activation = GatedActivation::silu_and_mul;
                c.n = 264;
              }),
              HasSubstr("in multiples of 16, found 264"));
  EXPECT_THAT(refused([](Call& c) { c.k_major = false; }), HasSubstr("unit stride along K"));
  EXPECT_THAT(refused([](Call& c) { c.out_n_major = false; }), HasSubstr("unit stride along N"));
  EXPECT_THAT(refused([](Call& c) { c.even_rows = false; }), HasSubstr("slabs with gaps"));
  EXPECT_THAT(refused([](Call& c) { c.expanded = true; }), HasSubstr("an expanded operand"));
  EXPECT_THAT(refused([](Call& c) { c.b_alignment = 8; }),
              HasSubstr("needs the address and strides of b aligned to 16 bytes, found 8"));
  EXPECT_THAT(refused([](Call& c) { c.num_rows = int64_t{1} << 31; }),
              HasSubstr("needs rows <= 2147483647, found 2147483648"));
}

TEST(GroupedGemmSm90, AnOlderGpuIsNamedWithWhatItHas) {
  const MoEGroupedGemmFwdOp op(MGroupedLayout::contiguous());
  EXPECT_THAT(error_of([&] { op.key_for<GroupedGemm>(fitting_call(), kAmpere); }),
              HasSubstr("sm90_strided (needs sm_90a, cuda:0 has sm_80)"));
}

TEST(GroupedGemmSm90, RowCountsShareAnEntryUpToTheNextTile) {
  Call few = fitting_call();
  Call fewer = few, many = few, more = few;
  fewer.num_rows = 1;
  many.num_rows = 4096;
  more.num_rows = 100000;
  EXPECT_EQ(key_of(few), key_of(fewer));
  EXPECT_EQ(key_of(many), key_of(more));
  EXPECT_FALSE(key_of(few) == key_of(many));
  Call other_sizes = few;
  other_sizes.n = 512;
  other_sizes.k = 1024;
  other_sizes.num_experts = 64;
  EXPECT_EQ(key_of(few), key_of(other_sizes)) << "sizes are no part of a program";
}

TEST(GroupedGemmSm90, EveryProgramIsRegisteredOnce) {
  std::vector<cuda::ProgramSpec> specs = cuda::registered_programs();
  std::erase_if(specs, [](const auto& spec) { return !spec.name.starts_with("grouped_gemm "); });
  EXPECT_EQ(specs.size(), 4U * 2 * 2 * 5 * 2) << "tiles, inputs, outputs, activations, bias";
  std::vector<std::string> names;
  for (const cuda::ProgramSpec& spec : specs) {
    EXPECT_TRUE(spec.uses_wgmma);
    EXPECT_LE(spec.dynamic_smem_bytes, 232448) << spec.name;
    names.push_back(spec.name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace tileops
