// SPDX-License-Identifier: Apache-2.0
// Which Hopper kernel serves which call, and why not the other; needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tests/support/cache_folder.h"
#include "tileops/core/embedded.h"
#include "tileops/core/error_testing.h"
#include "tileops/cuda/program.h"
#include "tileops/device/tile/row_tiling.h"
#include "tileops/op/explain.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_config.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_tuning.h"
#include "tileops/perf/tuning_table.h"
#include "tileops/spec/registry.h"

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

/// a, b, metadata and no bias, without contents.
std::array<Tensor, 4> meta_inputs(int64_t rows, int64_t experts, int64_t n, int64_t k) {
  return {Tensor::empty({rows, k}, DType::kBF16, kMetaDevice),
          Tensor::empty({experts, n, k}, DType::kBF16, kMetaDevice),
          Tensor::empty({experts}, DType::kI32, kMetaDevice), Tensor()};
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

TEST(GroupedGemmSm90, RowCountsOfABucketShareAnEntryAndADefault) {
  const auto with_rows = [](int64_t rows) {
    Call call = fitting_call();
    call.num_rows = rows;
    return key_of(call);
  };
  EXPECT_EQ(with_rows(512), with_rows(49 * 8)) << "49 to 64 rows an expert";
  EXPECT_FALSE(with_rows(512) == with_rows(513)) << "the next bucket";
  EXPECT_FALSE(with_rows(48 * 8) == with_rows(49 * 8)) << "one bucket, two defaults";
  EXPECT_FALSE(with_rows(96 * 8) == with_rows(97 * 8)) << "one bucket, two defaults";
  Call wider = fitting_call();
  wider.n = 512;
  EXPECT_FALSE(key_of(fitting_call()) == key_of(wider)) << "sizes are what tuning chooses by";
}

TEST(GroupedGemmSm90, EveryCandidateIsListedForWarm) {
  const auto entry = spec::entry("MoEGroupedGemmFwdOp");
  const MoEGroupedGemmFwdOp op(MGroupedLayout::contiguous());
  const auto inputs = meta_inputs(512, 8, 256, 128);
  const auto kernels = kernels_for_call(op, {inputs, {}}, kHopper);
  ASSERT_EQ(kernels.size(), 1U);
  std::vector<std::string> names;
  kernels[0]->list_programs([&](const cuda::ProgramSpec& spec) { names.push_back(spec.name); });
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre(HasSubstr("tma 128x64x8 bf16 to bf16 none"),
                                              HasSubstr("tma 256x64x5 bf16 to bf16 none"),
                                              HasSubstr("tma 128x128x6c2 ping-pong bf16 to"),
                                              HasSubstr("tma 128x176x5c2 ping-pong bf16 to")));
  EXPECT_TRUE(kernels[0]->tunable());
  EXPECT_TRUE(op.built_entries("grouped_gemm").empty()) << "built for the question alone";
}

std::string default_of(Call call, int64_t rows_of_expert) {
  call.num_rows = rows_of_expert * call.num_experts;
  return to_string(key_of(call).identity);
}

TEST(GroupedGemmSm90, TheDefaultTileFollowsTheRowsOfAnExpert) {
  const Call call = fitting_call();
  EXPECT_THAT(default_of(call, 1), HasSubstr("tma 256x64x5 "));
  EXPECT_THAT(default_of(call, 48), HasSubstr("tma 256x64x5 "));
  EXPECT_THAT(default_of(call, 49), HasSubstr("tma 128x128x6c2 ping-pong "));
  EXPECT_THAT(default_of(call, 96), HasSubstr("tma 128x128x6c2 ping-pong "));
  EXPECT_THAT(default_of(call, 97), HasSubstr("tma 128x176x5c2 ping-pong "));
}

/// Tiles follow each other to the end, in steps, none is empty or too long, and they differ by one
/// step at most; of many tiles, some.
void check_tiling(uint32_t num_rows) {
  constexpr int kTileRows = 176;
  const device::RowTiling<kTileRows> tiling{num_rows};
  const uint32_t num_tiles = tiling.num_tiles();
  ASSERT_EQ(num_tiles, (num_rows - 1) / kTileRows + 1) << num_rows;
  ASSERT_EQ(tiling.first_row(0), 0u);
  ASSERT_EQ(tiling.first_row(num_tiles), num_rows);
  uint32_t shortest = num_rows;
  uint32_t longest = 0;
  for (uint32_t tile = 0; tile < num_tiles; tile += 1 + num_tiles / 256) {
    const uint32_t first = tiling.first_row(tile);
    const uint32_t rows = tiling.first_row(tile + 1) - first;
    const uint32_t steps = (rows + device::kRowStep - 1) / device::kRowStep;
    ASSERT_EQ(first % device::kRowStep, 0u) << num_rows << " rows, tile " << tile;
    ASSERT_TRUE(rows > 0 && rows <= kTileRows) << num_rows << " rows, tile " << tile;
    shortest = std::min(shortest, steps);
    longest = std::max(longest, steps);
  }
  ASSERT_LE(longest - shortest, 1u) << num_rows << " rows";
}

TEST(GroupedGemmSm90, RowsAreCutEvenlyHoweverManyThereAre) {
  for (uint32_t num_rows = 1; num_rows < 3000; ++num_rows) check_tiling(num_rows);
  const uint32_t most = std::numeric_limits<int32_t>::max();
  for (uint32_t fewer = 0; fewer < 400; ++fewer) check_tiling(most - fewer);
}

TEST(GroupedGemmSm90, SlabsAndAMatrixAloneHaveDefaultsOfTheirOwn) {
  Call slabs = fitting_call();
  const auto of_slabs = [&](int64_t max_m) {
    slabs.layout = MGroupedLayout::masked(max_m);
    return default_of(slabs, max_m);
  };
  EXPECT_THAT(of_slabs(64), HasSubstr("tma 128x64x8 "));
  EXPECT_THAT(of_slabs(65), HasSubstr("tma 128x128x6c2 ping-pong "));
  EXPECT_THAT(of_slabs(128), HasSubstr("tma 128x128x6c2 ping-pong "));
  EXPECT_THAT(of_slabs(129), HasSubstr("tma 128x176x5c2 ping-pong "));
  Call alone = fitting_call();
  alone.num_experts = 1;
  EXPECT_THAT(default_of(alone, 4096), HasSubstr("tma 128x128x6c2 ping-pong "));
}

/// A wrong count would be waited for without end, on a GPU alone.
TEST(GroupedGemmSm90, WhoCountsInARowTilesCounter) {
  using namespace grouped_gemm;
  Sm90Config gate_up = kManyRowsConfig, wide_gate_up = kWideConfig;
  gate_up.activation = wide_gate_up.activation = ActivationKind::kSiluAndMul;
  EXPECT_EQ(gate_up.row_tile_writers(2048), 32) << "16 clusters of two, a warpgroup a tile";
  EXPECT_EQ(gate_up.row_tile_writers(2049), 34) << "whole clusters";
  EXPECT_EQ(wide_gate_up.row_tile_writers(768), 12) << "6 CTAs, both warpgroups";
  EXPECT_EQ(kManyRowsConfig.row_tile_reads(7168, 32), 28 * 2 * 32) << "each CTA of a cluster";
  EXPECT_EQ(kWideConfig.row_tile_reads(2000, 12), 8 * 12);
}

TEST(GroupedGemmSm90, NoTileIsTunedForSlabsThatFullerOnesReadWeightsTwiceIn) {
  const MoEGroupedGemmFwdOp op(MGroupedLayout::masked(128));
  const Tensor inputs[] = {Tensor::empty({8, 128, 128}, DType::kBF16, kMetaDevice),
                           Tensor::empty({8, 256, 128}, DType::kBF16, kMetaDevice),
                           Tensor::empty({8}, DType::kI32, kMetaDevice),
                           {}};
  std::vector<std::string> names;
  kernels_for_call(op, {inputs, {}}, kHopper)
      .at(0)
      ->list_programs([&](const cuda::ProgramSpec& spec) { names.push_back(spec.name); });
  EXPECT_THAT(names, ::testing::Contains(HasSubstr("tma 128x128x6c2 ping-pong ")));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains(HasSubstr("tma 256x64x5 "))));
}

TEST(GroupedGemmSm90, ATableDecidesAndAForcedTileDecidesMore) {
  const testing::CacheFolder folder("sm90_table");
  const MoEGroupedGemmFwdOp op(MGroupedLayout::contiguous());
  const auto inputs = meta_inputs(512, 8, 256, 128);
  DeviceFacts facts = kHopper;
  facts.name = "a table's device";
  const auto text = [&](const Op& asked) {
    return explain_call(asked, {inputs, {}}, facts).text();
  };
  EXPECT_THAT(text(op), HasSubstr("tile_rows=128, stages=6, ctas=2, ping_pong=1 (default)"));
  const perf::TuningKey key{facts.name, "grouped_gemm/sm90_weights_on_m",
                            grouped_gemm::tuning_bucket(fitting_call())};
  perf::keep_tuned(key, {{{"tile_rows", int64_t{7}}}, 1, 1}, true);
  EXPECT_THAT(text(op), HasSubstr("tile_rows=128, stages=6, ctas=2, ping_pong=1 (default)"))
      << "no candidate: another library's";
  perf::keep_tuned(key,
                   {{{"tile_features", int64_t{128}},
                     {"tile_rows", int64_t{176}},
                     {"stages", int64_t{5}},
                     {"ctas", int64_t{2}},
                     {"ping_pong", int64_t{1}}},
                    1,
                    2},
                   true);
  EXPECT_THAT(text(op), HasSubstr("tile_rows=176, stages=5, ctas=2, ping_pong=1 (table)"));
  const MoEGroupedGemmFwdOp forced(MGroupedLayout::contiguous(), {}, {},
                                   {.kernel_config = {{"tile_rows", int64_t{64}}}});
  EXPECT_THAT(text(forced), HasSubstr("tile_features=128, tile_rows=64, stages=8"));
  const MoEGroupedGemmFwdOp pair(
      MGroupedLayout::contiguous(), {}, {},
      {.kernel_config = {{"tile_rows", int64_t{64}}, {"tile_features", int64_t{256}}}});
  EXPECT_THAT(text(pair), HasSubstr("tile_rows=64, stages=5, ctas=1, ping_pong=0 (forced)"));
  const MoEGroupedGemmFwdOp none(MGroupedLayout::contiguous(), {}, {},
                                 {.kernel_config = {{"stages", int64_t{9}}}});
  EXPECT_THAT(error_of([&] { text(none); }), HasSubstr("ping_pong=1 here, got stages=9"));
}

/// Otherwise a table that is older than the tiles would be passed over in silence.
TEST(GroupedGemmSm90, TheShippedTableNamesTilesThatThereAre) {
  const auto inputs = meta_inputs(512, 8, 256, 128);
  size_t num_entries = 0;
  for (const EmbeddedFile& file : embedded::tuned_files()) {
    for (const perf::TuningEntry& entry : perf::parse_tuning_table(file.text, file.path)) {
      if (entry.key.implementation != "grouped_gemm/sm90_weights_on_m") continue;
      const MoEGroupedGemmFwdOp op(MGroupedLayout::contiguous(), {}, {},
                                   {.kernel_config = entry.tuned.config});
      EXPECT_THAT(explain_call(op, {inputs, {}}, kHopper).text(), HasSubstr("(forced)"))
          << entry.key.bucket;
      ++num_entries;
    }
  }
  EXPECT_GT(num_entries, 0U);
}

TEST(GroupedGemmSm90, TheShippedTableIsFoundByTheKindOfACall) {
  const auto inputs = meta_inputs(65536, 128, 2048, 768);
  DeviceFacts facts = kHopper;
  const MoEGroupedGemmFwdOp op(MGroupedLayout::contiguous());
  EXPECT_THAT(explain_call(op, {inputs, {}}, facts).text(), HasSubstr("(default)"));
  facts.name = "NVIDIA H200";
  EXPECT_THAT(explain_call(op, {inputs, {}}, facts).text(), HasSubstr("(table)"));
}

TEST(GroupedGemmSm90, EveryProgramIsRegisteredOnce) {
  std::vector<cuda::ProgramSpec> specs = cuda::registered_programs();
  std::erase_if(specs, [](const auto& spec) { return !spec.name.starts_with("grouped_gemm "); });
  EXPECT_EQ(specs.size(), 5U * 2 * 2 * 5 * 2) << "tiles, inputs, outputs, activations, bias";
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
