// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/testing.h"
#include "tileops/core/error.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::int_tensor;
using testing::poisoned;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;

TEST(ExpertMlp, ImplementationsAgreeOnEverySmallWorkload) {
  const auto entry = spec::entry("MoEExpertMLPFwdOp");
  int num_cases = 0;
  for (const spec::WorkloadCase& which : spec::workload_cases(*entry)) {
    if (std::find(which.tags.begin(), which.tags.end(), "small") == which.tags.end()) continue;
    ++num_cases;
    const std::vector<Tensor> inputs = spec::make_inputs(entry, which, 5);
    const auto reference =
        MoEExpertMLPFwdOp::from_params(which.params, {.implementation = "reference"});
    const auto op = MoEExpertMLPFwdOp::from_params(which.params, {});
    const Tensor want = reference->call({inputs, {}})[0];
    const Tensor outs[] = {poisoned(want.shape(), want.dtype())};
    const Tensor got = op->call({inputs, outs})[0];
    const MGroupedLayout layout = MGroupedLayout::from_value(op->params().at("layout"));
    const RowMatrix matrix = row_matrix(layout, want);
    for (const ExpertRows& rows :
         expert_rows(layout, inputs[3], inputs[1].size(0), matrix.num_rows)) {
      for (int64_t row = rows.row_begin; row < rows.row_begin + rows.num_rows; ++row) {
        const auto row_of = [&](const Tensor& t) {
          return t.as_strided({matrix.num_columns}, {matrix.column_stride}, matrix.offset(row));
        };
        EXPECT_LE(relative_error(row_of(got), row_of(want)), 2 * tolerance(want.dtype()))
            << which.id << " row " << row;
      }
    }
  }
  EXPECT_GE(num_cases, 3);
}

TEST(ExpertMlp, ComputesTheClosedForm) {
  // H = F = 1: out = w_down · silu(wg·x + bg)·(wu·x + bu) + bd.
  const auto one = [](const Shape& shape, std::vector<double> v) {
    return Tensor::from_values(shape, DType::kF16, v);
  };
  const MoEExpertMLPFwdOp mlp(MGroupedLayout::contiguous(), GatedActivation::silu_and_mul);
  const Tensor y =
      mlp(one({1, 1}, {1.5}), one({1, 2, 1}, {2, -3}), one({1, 1, 1}, {0.5}), int_tensor({1}, {1}),
          {.b_gate_up = one({1, 2}, {0.25, 1}), .b_down = one({1, 1}, {0.125})});
  const double gate = 2 * 1.5 + 0.25, up = -3 * 1.5 + 1;
  EXPECT_NEAR(y.at({0, 0}), 0.5 * gate / (1 + std::exp(-gate)) * up + 0.125, 5e-3);
}

TEST(ExpertMlp, RecordsItsStagesAndPricesThem) {
  const MoEExpertMLPFwdOp mlp(MGroupedLayout::contiguous(), GatedActivation::silu_and_mul);
  mlp(random_tensor({6, 8}, DType::kBF16, 1), random_tensor({3, 32, 8}, DType::kBF16, 2),
      random_tensor({3, 8, 16}, DType::kBF16, 3), int_tensor({3}, {2, 2, 6}));
  const RecordPtr call = mlp.last_call();
  ASSERT_EQ(call->stages("gate_up").size(), 1u);
  ASSERT_EQ(call->stages("down").size(), 1u);
  EXPECT_EQ(call->stages("gate_up")[0]->index("N"), 16);
  EXPECT_EQ(call->stages("down")[0]->index("K"), 16);
  EXPECT_EQ(mlp.eval_roofline().flops, 2.0 * 6 * 32 * 8 + 2.0 * 6 * 8 * 16);
  const double weight_bytes = 2.0 * (2 * 32 * 8 + 2 * 8 * 16);  // two of three experts are hit
  EXPECT_EQ(mlp.eval_roofline().bytes, weight_bytes + 2.0 * 6 * 8 * 2 + 3 * 4);
  EXPECT_NE(mlp.explain().text().find("cpu_blocked"), std::string::npos);
}

TEST(ExpertMlp, ZeroRowsRunNothing) {
  const MoEExpertMLPFwdOp mlp(MGroupedLayout::contiguous());
  const Tensor y =
      mlp(Tensor::empty({0, 8}, DType::kBF16), random_tensor({3, 32, 8}, DType::kBF16, 2),
          random_tensor({3, 8, 16}, DType::kBF16, 3), int_tensor({3}, {0, 0, 0}));
  EXPECT_EQ(y.shape(), (Shape{0, 8}));
  EXPECT_TRUE(mlp.last_call()->stages("gate_up").empty());
  EXPECT_FALSE(mlp.serving_target().has_value());
}

TEST(ExpertMlp, WritesIntoTheCallersBuffer) {
  const MoEExpertMLPFwdOp mlp(MGroupedLayout::masked(2));
  const Tensor x = random_tensor({2, 2, 8}, DType::kBF16, 1),
               w1 = random_tensor({2, 8, 8}, DType::kBF16, 2),
               w2 = random_tensor({2, 8, 4}, DType::kBF16, 3), counts = int_tensor({2}, {2, 2});
  const Tensor out = poisoned({2, 2, 8}, DType::kBF16);
  const Tensor y = mlp(x, w1, w2, counts, {.out = out});
  EXPECT_TRUE(y.is_same_view(out));
  EXPECT_TRUE(bit_equal(out, mlp(x, w1, w2, counts)));
}

}  // namespace
}  // namespace tileops
