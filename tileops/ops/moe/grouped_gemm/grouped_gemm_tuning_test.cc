// SPDX-License-Identifier: Apache-2.0
// Tuned mode on the CPU: the inner loop is measured, kept, told, and changes no result.
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cache_folder.h"
#include "tests/support/testing.h"
#include "tileops/core/error_testing.h"
#include "tileops/core/freeze.h"
#include "tileops/cpu/features.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"

namespace tileops {
namespace {

using ::testing::HasSubstr;
using testing::int_tensor;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;

const MGroupedLayout kTight = MGroupedLayout::contiguous();

TEST(TuningInputs, RowsShareABucketUpToAPowerOfTwo) {
  EXPECT_EQ(rows_bucket(1, 128), "1 rows");
  EXPECT_EQ(rows_bucket(9, 128), "16 rows");
  EXPECT_EQ(rows_bucket(128, 128), "1 rows/E");
  EXPECT_EQ(rows_bucket(129, 128), "2 rows/E");
  EXPECT_EQ(rows_bucket(4096, 128), "32 rows/E");
  EXPECT_EQ(rows_bucket(0, 0), "1 rows/E");
}

TEST(TuningInputs, MetadataOfEveryLayoutAndRoutingFits) {
  const MGroupedLayout layouts[] = {
      kTight, MGroupedLayout::tight_per_row(), MGroupedLayout::aligned_physical_psum(16),
      MGroupedLayout::aligned_per_row(16), MGroupedLayout::masked(64)};
  for (const MGroupedLayout& layout : layouts) {
    for (const std::string_view routing : kTuningRoutings) {
      for (const int64_t wanted : {1, 5, 200, 512}) {
        const int64_t num_rows = layout.is_masked() ? 8 * 64 : wanted;
        const Tensor metadata = tuning_metadata(layout, num_rows, 8, routing, kCpuDevice);
        int64_t end = 0;
        for (const ExpertRows& rows : expert_rows(layout, metadata, 8, num_rows)) {
          EXPECT_GE(rows.row_begin, end);
          end = rows.row_begin + rows.num_rows;
        }
        EXPECT_LE(end, num_rows);
        const int64_t filled = layout == kTight ? num_rows : end;
        EXPECT_EQ(end, filled) << "every row is an expert's";
      }
    }
  }
}

TEST(TuningInputs, ACpuIsTunedOnFewerExpertsWithAsManyRowsOfEach) {
  const grouped_gemm::Call call{.num_rows = 4096, .num_experts = 256, .n = 4096, .k = 7168};
  const grouped_gemm::Call small = grouped_gemm::cpu_tuning_call(call);
  EXPECT_LT(small.num_experts, 8);
  EXPECT_GE(small.num_experts, 2);
  EXPECT_EQ(small.num_rows, 16 * small.num_experts);
  const grouped_gemm::Call tiny{.num_rows = 3, .num_experts = 2, .n = 8, .k = 8};
  EXPECT_EQ(grouped_gemm::cpu_tuning_call(tiny), tiny);
  EXPECT_EQ(grouped_gemm::cpu_tuning_call({}), grouped_gemm::Call());
}

/// Tables of a folder of its own, and back.
class GroupedGemmTuning : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cpu::active_isa() < cpu::IsaLevel::kAvx512Bf16)
      GTEST_SKIP() << "one inner loop: none to choose";
  }
  Tensor call(const MoEGroupedGemmFwdOp& op) const { return op(a_, b_, int_tensor({2}, {9, 32})); }

  const Tensor a_ = random_tensor({32, 128}, DType::kBF16, 9);
  const Tensor b_ = random_tensor({2, 64, 128}, DType::kBF16, 8);
  const testing::CacheFolder folder_{"gemm_tuning"};
};

TEST_F(GroupedGemmTuning, Contract_C2_tuning_keeps_results_and_tells_where_the_choice_is_from) {
  const MoEGroupedGemmFwdOp op(kTight);
  const Tensor untuned = call(op);
  EXPECT_EQ(op.kernel_config().at(0).origin, ConfigOrigin::kDefault);
  EXPECT_EQ(op.kernel_config().at(0).values, (Params{{"inner_loop", "auto"}}));
  EXPECT_THAT(op.explain().text(), HasSubstr("inner_loop=auto (default)"));
  op.request_tune();
  EXPECT_EQ(op.kernel_config().at(0).origin, ConfigOrigin::kTuned);
  EXPECT_THAT(op.explain().text(), HasSubstr("(tuned)"));
  EXPECT_LE(relative_error(call(op), untuned), tolerance(DType::kBF16));
  const MoEGroupedGemmFwdOp next(kTight);
  call(next);
  EXPECT_EQ(next.kernel_config().at(0).origin, ConfigOrigin::kTable);
  EXPECT_EQ(next.kernel_config().at(0).values, op.kernel_config().at(0).values);
}

TEST_F(GroupedGemmTuning, Contract_C2_a_frozen_process_tunes_later) {
  const MoEGroupedGemmFwdOp op(kTight);
  op.request_tune();
  freeze();
  EXPECT_THAT(error_of([&] { call(op); }), HasSubstr("measuring was ended by freeze()"));
  thaw();
  EXPECT_TRUE(op.tuned());
  call(op);
  EXPECT_EQ(op.kernel_config().at(0).origin, ConfigOrigin::kTuned);
}

TEST_F(GroupedGemmTuning, WhatIsForcedOrInvariantStays) {
  const MoEGroupedGemmFwdOp forced(kTight, {}, {}, {.kernel_config = {{"inner_loop", "fma"}}});
  const MoEGroupedGemmFwdOp invariant(kTight, {}, {}, /*batch_invariant=*/true);
  for (const MoEGroupedGemmFwdOp* op : {&forced, &invariant}) {
    call(*op);
    op->request_tune();
    call(*op);
  }
  EXPECT_EQ(forced.kernel_config().at(0).origin, ConfigOrigin::kForced);
  EXPECT_EQ(invariant.kernel_config().at(0).origin, ConfigOrigin::kDefault);
}

}  // namespace
}  // namespace tileops
