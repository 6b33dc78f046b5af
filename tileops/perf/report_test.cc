// SPDX-License-Identifier: Apache-2.0
#include "tileops/perf/report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tileops/moe.h"

namespace tileops::perf {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kExperts = 2, kRows = 5, kHidden = 8, kInter = 4;

Tensor zeros(const Shape& shape, DType dtype = DType::kBF16) {
  const std::vector<double> values(static_cast<size_t>(num_elements(shape)));
  return Tensor::from_values(shape, dtype, values);
}

/// A record of a two-stage composite call on 5 rows of 2 experts.
RecordPtr expert_mlp_record(bool timed = true) {
  const MoEExpertMLPFwdOp mlp(MGroupedLayout::contiguous());
  const double ends[] = {3, 5};
  set_call_timing(timed);
  mlp(zeros({kRows, kHidden}), zeros({kExperts, 2 * kInter, kHidden}),
      zeros({kExperts, kHidden, kInter}), Tensor::from_values({kExperts}, DType::kI32, ends));
  set_call_timing(false);
  return mlp.last_call();
}

DeviceProfile profile(double gbps, double gflops) {
  return {.device = "a test device",
          .read_gbps = gbps,
          .peak_gflops = gflops,
          .ceiling_gbps = 1e12,
          .ceiling_gflops = 1e12};
}

TEST(Contract_J2, TimeStandsBesideTheFloorPerStageAndWhole) {
  const RecordPtr record = expert_mlp_record();
  const Report report = make_report(*record, profile(1e-3, 1e6));
  ASSERT_EQ(report.stages.size(), 2);
  EXPECT_EQ(report.stages[0].stage, "gate_up");
  EXPECT_EQ(report.stages[1].stage, "down");
  const double flops = 6.0 * kRows * kHidden * kInter;
  EXPECT_DOUBLE_EQ(report.cost->flops, flops);
  EXPECT_DOUBLE_EQ(report.stages[0].cost->flops + report.stages[1].cost->flops, flops);
  for (const Report* each : {&report, &report.stages[0], &report.stages[1]}) {
    ASSERT_TRUE(each->time_us && each->share && each->cost);
    EXPECT_DOUBLE_EQ(each->floor_us, each->cost->bytes) << "1e-3 GB/s reads a byte a microsecond";
    EXPECT_DOUBLE_EQ(*each->share, each->floor_us / *each->time_us);
  }
}

TEST(Contract_J2, SaysWhichTermBinds) {
  const RecordPtr record = expert_mlp_record();
  EXPECT_EQ(make_report(*record, profile(1e-3, 1e6)).bound, Bound::kBytes);
  EXPECT_EQ(make_report(*record, profile(1e6, 1e-3)).bound, Bound::kFlops);
}

TEST(Contract_J2, RateAboveTheCeilingIsAFormulaErrorAndNoShare) {
  DeviceProfile slow = profile(1e-6, 1e6);
  slow.ceiling_gbps = 1e-6;
  const Report report = make_report(*expert_mlp_record(), slow);
  EXPECT_FALSE(report.share.has_value());
  EXPECT_TRUE(report.has_fault());
  EXPECT_THAT(report.fault, HasSubstr("formula error"));
  EXPECT_THAT(report.fault, HasSubstr("the spec's bytes are too many"));
  EXPECT_THAT(text(report), HasSubstr("! MoEGroupedGemmFwdOp (gate_up): formula error"));

  slow = profile(1e6, 1e-6);
  slow.ceiling_gflops = 1e-6;
  EXPECT_THAT(make_report(*expert_mlp_record(), slow).fault,
              HasSubstr("the spec's flops are too many"));
}

TEST(Report, UntimedCallHasAFloorAndNoShare) {
  const Report report = make_report(*expert_mlp_record(/*timed=*/false), profile(1, 1));
  EXPECT_FALSE(report.time_us.has_value());
  EXPECT_FALSE(report.share.has_value());
  EXPECT_GT(report.floor_us, 0);
  EXPECT_FALSE(report.has_fault());
}

TEST(Report, NamesTheKernelsThatRan) {
  const Report report = make_report(*expert_mlp_record(), profile(1, 1));
  EXPECT_EQ(report.served_by, "builtin");
  EXPECT_TRUE(report.kernels.empty());
  ASSERT_EQ(report.stages[0].kernels.size(), 1);
  EXPECT_THAT(report.stages[0].kernels[0], HasSubstr("grouped_gemm/"));
}

TEST(Report, JsonHoldsWhatTheTableShows) {
  const auto json =
      nlohmann::json::parse(to_json(make_report(*expert_mlp_record(), profile(1, 1))));
  EXPECT_EQ(json["op"], "MoEExpertMLPFwdOp");
  EXPECT_EQ(json["stages"].size(), 2);
  EXPECT_EQ(json["stages"][1]["stage"], "down");
  EXPECT_TRUE(json["fault"].is_null());
  EXPECT_GT(json["share"].get<double>(), 0);
}

}  // namespace
}  // namespace tileops::perf
