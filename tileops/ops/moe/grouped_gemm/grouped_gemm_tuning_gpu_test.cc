// SPDX-License-Identifier: Apache-2.0
// Tuned mode on a GPU: what is measured, kept and refused, and that results stay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/cache_folder.h"
#include "tests/support/gpu.h"
#include "tileops/core/error_testing.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_gpu_testing.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"
#include "tileops/perf/autotuner.h"

namespace tileops {
namespace {

using ::testing::HasSubstr;
using testing::kGpu;

const MGroupedLayout kTight = MGroupedLayout::contiguous();

/// A table of its own: nothing is kept, nothing shipped for these sizes.
class GroupedGemmTuningGpu : public testing::HopperTest {
 public:
  void SetUp() override {
    HopperTest::SetUp();
    if (IsSkipped()) return;
    a_ = cuda::to_device(testing::random_tensor({600, 256}, DType::kBF16, 1), kGpu);
    b_ = cuda::to_device(testing::random_tensor({4, 384, 256}, DType::kBF16, 2, 0.1), kGpu);
    ends_ = cuda::to_device(testing::int_tensor({4}, {200, 200, 411, 600}), kGpu);
  }
  Tensor a_, b_, ends_;
  const testing::CacheFolder folder_{"gpu_tuning"};
};

TEST_F(GroupedGemmTuningGpu,
       Contract_C2_tuning_keeps_results_and_the_next_process_finds_the_choice) {
  const MoEGroupedGemmFwdOp op(kTight);
  const Tensor untuned = cuda::to_host(op(a_, b_, ends_));
  EXPECT_EQ(op.kernel_config().at(0).origin, ConfigOrigin::kDefault);
  op.request_tune();
  EXPECT_EQ(op.kernel_config().at(0).origin, ConfigOrigin::kTuned);
  EXPECT_LE(testing::relative_error(cuda::to_host(op(a_, b_, ends_)), untuned),
            testing::tolerance(DType::kBF16));
  const std::string path = perf::tuning_table_path(perf::tuning_device(device_facts(kGpu).name));
  EXPECT_TRUE(std::filesystem::exists(path)) << path;
  const MoEGroupedGemmFwdOp next(kTight);
  next(a_, b_, ends_);
  EXPECT_EQ(next.kernel_config().at(0).origin, ConfigOrigin::kTable);
  EXPECT_EQ(next.kernel_config().at(0).values, op.kernel_config().at(0).values);
}

TEST_F(GroupedGemmTuningGpu, EveryCandidateComputesTheSame) {
  const MoEGroupedGemmFwdOp reference(kTight, {}, {}, {.implementation = "reference"});
  const Tensor want = reference(cuda::to_host(a_), cuda::to_host(b_), cuda::to_host(ends_));
  for (const Params& tile : testing::forced_tiles()) {
    const MoEGroupedGemmFwdOp op(kTight, {}, {}, {.kernel_config = tile});
    EXPECT_LE(testing::relative_error(cuda::to_host(op(a_, b_, ends_)), want),
              testing::tolerance(DType::kBF16))
        << to_string(tile);
    EXPECT_EQ(op.kernel_config().at(0).origin, ConfigOrigin::kForced);
  }
}

TEST_F(GroupedGemmTuningGpu, ACaptureMeasuresNothingAndTheOpTunesAfterIt) {
  const MoEGroupedGemmFwdOp op(kTight);
  op.request_tune();
  const cuda::OwnedStream stream(kGpu);
  cuda::synchronize(current_stream(kGpu));
  const StreamGuard guard(stream);
  EXPECT_THAT(error_of([&] { cuda::Graph::capture(stream, [&] { op(a_, b_, ends_); }); }),
              HasSubstr("a stream capture allows no measuring"));
  EXPECT_TRUE(op.tuned());
  op(a_, b_, ends_);
  EXPECT_EQ(op.kernel_config().at(0).origin, ConfigOrigin::kTuned);
  const cuda::Graph graph = cuda::Graph::capture(stream, [&] { op(a_, b_, ends_); });
  graph.replay(stream);
  cuda::synchronize(stream);
}

}  // namespace
}  // namespace tileops
