// SPDX-License-Identifier: Apache-2.0
// The post-permutation on a Hopper GPU, beside the reference; skips where there is none.
#include <gtest/gtest.h>

#include "tests/support/gpu.h"
#include "tileops/ops/moe/post_permute/post_permute_op.h"

namespace tileops {
namespace {

using testing::int_tensor;
using testing::random_tensor;

struct PostPermuteGpu : testing::HopperTest {};

void compare(const std::vector<Tensor>&, const std::vector<Tensor>& got, const Results& want) {
  EXPECT_LE(testing::relative_error(got[0], want[0]), testing::tolerance(want[0].dtype()));
}

void check(const MGroupedLayout& layout, std::optional<DType> out_dtype, const Tensor& rows,
           const Tensor& weights, const Tensor& inverse) {
  const MoEPostPermuteFwdOp op(layout, RoutingEpilogue{2.5}, out_dtype);
  testing::beside_reference<MoEPostPermuteFwdOp>(op.params(), {rows, weights, inverse}, {0},
                                                 compare);
}

/// Rows of the routes, some outside the rows.
Tensor some_rows(int64_t num_routes, int64_t num_rows) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < num_routes; ++i) rows.push_back((i * 7919) % (num_rows + 2) - 1);
  return int_tensor({num_routes}, rows);
}

TEST_F(PostPermuteGpu, SmallWorkloadsAgreeWithTheReference) {
  testing::small_workloads_beside_reference<MoEPostPermuteFwdOp>({0}, compare);
}

TEST_F(PostPermuteGpu, EveryPairOfTypesAndManySizesAgreeWithTheReference) {
  constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};
  for (const DType in : kTypes) {
    for (const DType out : kTypes) {
      for (const int64_t hidden : {1, 8, 63, 1024, 2056}) {
        for (const int64_t top_k : {1, 8, 9, 64}) {
          SCOPED_TRACE("H " + std::to_string(hidden) + " K " + std::to_string(top_k));
          check(MGroupedLayout::contiguous(), out, random_tensor({50, hidden}, in, 1),
                random_tensor({5, top_k}, DType::kF32, 2), some_rows(5 * top_k, 50));
        }
      }
    }
  }
}

TEST_F(PostPermuteGpu, NaNsOfRowsThatNoRouteHasStayThere) {
  Tensor rows = random_tensor({4, 16}, DType::kBF16, 1);
  std::memset(rows.data_as<std::byte>() + 32, 0xff, 32);
  check(MGroupedLayout::contiguous(), std::nullopt, rows, random_tensor({2, 2}, DType::kF32, 2),
        int_tensor({4}, {0, -1, 2, 3}));
}

TEST_F(PostPermuteGpu, AnyStridesAreRead) {
  const Tensor weights = random_tensor({3, 6}, DType::kF32, 2).transpose(0, 1);
  const Tensor inverse = int_tensor({18, 2}, std::vector<int64_t>(36, 7)).select(1, 0);
  const Tensor wide = random_tensor({4, 6, 40}, DType::kF16, 3);
  check(MGroupedLayout::masked(5), std::nullopt, wide.narrow(1, 0, 5), weights, inverse);
  check(MGroupedLayout::masked(5), std::nullopt, wide.narrow(1, 1, 5).narrow(2, 3, 31), weights,
        some_rows(18, 20));
  check(MGroupedLayout::contiguous(), DType::kF32,
        random_tensor({33, 20}, DType::kBF16, 4).transpose(0, 1), weights, some_rows(18, 20));
}

}  // namespace
}  // namespace tileops
