// SPDX-License-Identifier: Apache-2.0
// The pre-permutation on a Hopper GPU, beside the reference; skips where there is none.
#include <gtest/gtest.h>

#include <random>

#include "tests/support/gpu.h"
#include "tileops/ops/moe/pre_permute/pre_permute_op.h"

namespace tileops {
namespace {

using testing::elements;
using testing::int_tensor;
using testing::random_tensor;

struct PrePermuteGpu : testing::HopperTest {};

/// Metadata and row of each route equal, and the same bits in each route's row.
void compare(const std::vector<Tensor>& inputs, const std::vector<Tensor>& got,
             const Results& want) {
  EXPECT_EQ(elements(got[1]), elements(want[1]));
  EXPECT_EQ(elements(got[2]), elements(want[2]));
  const Tensor hidden = inputs[0].contiguous();
  const int64_t top_k = inputs[1].shape()[1];
  const auto row_bytes = static_cast<size_t>(hidden.shape()[1] * dtype_bytes(hidden.dtype()));
  const auto* inverse = got[2].data_as<int32_t>();
  int64_t num_wrong = 0;
  for (int64_t route = 0; route < got[2].num_elements(); ++route) {
    if (inverse[route] < 0) continue;
    const auto* row = got[0].data_as<std::byte>() + static_cast<size_t>(inverse[route]) * row_bytes;
    const auto* source =
        hidden.data_as<std::byte>() + static_cast<size_t>(route / top_k) * row_bytes;
    num_wrong += std::memcmp(row, source, row_bytes) != 0;
  }
  EXPECT_EQ(num_wrong, 0);
}

void check(const MGroupedLayout& layout, int64_t num_experts, const Tensor& hidden,
           const Tensor& ids) {
  testing::beside_reference<MoEPrePermuteFwdOp>(
      {{"layout", layout.to_value()}, {"num_local_experts", num_experts}}, {hidden, ids}, {1, 2},
      compare);
}

/// Ids in [lowest, highest].
Tensor random_ids(int64_t num_tokens, int64_t top_k, int64_t lowest, int64_t highest) {
  std::mt19937_64 engine(static_cast<uint64_t>(num_tokens + highest));
  std::uniform_int_distribution<int64_t> any(lowest, highest);
  std::vector<int64_t> ids(static_cast<size_t>(num_tokens * top_k));
  for (int64_t& id : ids) id = any(engine);
  return int_tensor({num_tokens, top_k}, ids);
}

TEST_F(PrePermuteGpu, SmallWorkloadsAgreeWithTheReference) {
  testing::small_workloads_beside_reference<MoEPrePermuteFwdOp>({1, 2}, compare);
}

TEST_F(PrePermuteGpu, EveryLayoutAtSizesAroundTheChunksAgreesWithTheReference) {
  const MGroupedLayout layouts[] = {MGroupedLayout::tight_physical_psum(),
                                    MGroupedLayout::tight_per_row(),
                                    MGroupedLayout::aligned_physical_psum(16),
                                    MGroupedLayout::aligned_per_row(8), MGroupedLayout::masked(20)};
  for (const MGroupedLayout& layout : layouts) {
    for (const int64_t num_tokens : {0, 1, 31, 63, 64, 65, 300, 16500}) {
      for (const int64_t num_experts : {1, 7, 70}) {
        SCOPED_TRACE(to_string(layout.to_value()) + " T " + std::to_string(num_tokens) + " E " +
                     std::to_string(num_experts));
        check(layout, num_experts, random_tensor({num_tokens, 8}, DType::kBF16, 1),
              random_ids(num_tokens, 4, -2, num_experts + 1));
      }
    }
  }
}

TEST_F(PrePermuteGpu, EveryLayoutAroundTheRoutesOfOneLaunchAgreesWithTheReference) {
  struct Sizes {
    int64_t num_tokens, top_k;
  };
  const Sizes around[] = {{255, 1}, {256, 1}, {257, 1}, {2047, 1}, {2048, 1}, {2049, 1},
                          {255, 8}, {256, 8}, {257, 8}, {23, 89},  {2048, 4}, {2049, 4}};
  const MGroupedLayout layouts[] = {MGroupedLayout::tight_physical_psum(),
                                    MGroupedLayout::tight_per_row(),
                                    MGroupedLayout::aligned_physical_psum(16),
                                    MGroupedLayout::aligned_per_row(8), MGroupedLayout::masked(20)};
  for (const MGroupedLayout& layout : layouts) {
    for (const auto [num_tokens, top_k] : around) {
      for (const int64_t num_experts : {3, 128, 300}) {
        SCOPED_TRACE(to_string(layout.to_value()) + " T " + std::to_string(num_tokens) + " K " +
                     std::to_string(top_k) + " E " + std::to_string(num_experts));
        check(layout, num_experts, random_tensor({num_tokens, 40}, DType::kBF16, 1),
              random_ids(num_tokens, top_k, -2, num_experts + 1));
      }
    }
  }
}

TEST_F(PrePermuteGpu, ExtremesOfExpertsAndRowsAgreeWithTheReference) {
  const auto layout = MGroupedLayout::contiguous();
  check(layout, 2048, random_tensor({100, 16}, DType::kF16, 2), random_ids(100, 64, 0, 2047));
  check(layout, 16384, random_tensor({100, 16}, DType::kF16, 2), random_ids(100, 64, 0, 16383));
  check(layout, 16384, random_tensor({100, 16}, DType::kF16, 2), random_ids(100, 8, 0, 16383));
  check(layout, 5, random_tensor({777, 33}, DType::kF16, 3), random_ids(777, 2, 3, 3));
  check(layout, 5, random_tensor({77, 33}, DType::kF16, 3), random_ids(77, 2, 5, 9));
  check(layout, 0, random_tensor({7, 8}, DType::kF16, 3), random_ids(7, 2, 0, 3));
  check(layout, 4, random_tensor({3, 0}, DType::kF16, 3), random_ids(3, 2, 0, 3));
  check(layout, 4, random_tensor({3, 7168}, DType::kBF16, 3), random_ids(3, 2, 0, 3));
  check(layout, 300, random_tensor({1, 24}, DType::kBF16, 3), random_ids(1, 256, 0, 299));
  check(layout, 300, random_tensor({1, 24}, DType::kBF16, 3), random_ids(1, 257, 0, 299));
  check(layout, 300, random_tensor({8, 7168}, DType::kBF16, 3), random_ids(8, 256, 0, 299));
  check(layout, 256, random_tensor({256, 7168}, DType::kBF16, 3), random_ids(256, 8, 0, 255));
  check(MGroupedLayout::masked(2), 3, random_tensor({90, 24}, DType::kBF16, 3),
        random_ids(90, 2, 0, 2));
}

TEST_F(PrePermuteGpu, AnyStridesAndAlignmentAreRead) {
  const Tensor ids = random_ids(6, 40, -1, 4).transpose(0, 1);
  const Tensor wide = random_tensor({40, 33}, DType::kBF16, 4);
  check(MGroupedLayout::contiguous(), 5, wide.narrow(1, 1, 32), ids);
  check(MGroupedLayout::contiguous(), 5, random_tensor({32, 40}, DType::kBF16, 5).transpose(0, 1),
        ids);
}

}  // namespace
}  // namespace tileops
