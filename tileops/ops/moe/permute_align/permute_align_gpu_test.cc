// SPDX-License-Identifier: Apache-2.0
// The block-aligned order on a Hopper GPU, beside the reference; skips where there is none.
#include <gtest/gtest.h>

#include <random>

#include "tests/support/gpu.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/permute_align/permute_align_op.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::int_tensor;
using testing::kGpu;

struct PermuteAlignGpu : testing::HopperTest {};

void compare(const std::vector<Tensor>&, const std::vector<Tensor>& got, const Results& want) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(bit_equal(got[static_cast<size_t>(i)], want[i])) << "output " << i;
  }
}

/// Ids in [-1, num_experts].
Tensor random_ids(int64_t num_tokens, int64_t top_k, int64_t num_experts) {
  std::mt19937_64 engine(static_cast<uint64_t>(num_tokens + num_experts));
  std::uniform_int_distribution<int64_t> any(-1, num_experts);
  std::vector<int64_t> ids(static_cast<size_t>(num_tokens * top_k));
  for (int64_t& id : ids) id = any(engine);
  return int_tensor({num_tokens, top_k}, ids);
}

void check(int64_t num_experts, int64_t block_size, const Tensor& ids) {
  testing::beside_reference<MoEPermuteAlignFwdOp>(
      {{"num_experts", num_experts}, {"block_size", block_size}}, {ids}, {0, 1, 2}, compare);
}

TEST_F(PermuteAlignGpu, SmallWorkloadsAgreeWithTheReference) {
  testing::small_workloads_beside_reference<MoEPermuteAlignFwdOp>({0, 1, 2}, compare);
}

TEST_F(PermuteAlignGpu, AGridOfSizesAgreesWithTheReference) {
  for (const int64_t num_tokens : {0, 1, 31, 33, 64, 65, 300, 2048, 2049, 16500}) {
    for (const int64_t num_experts : {0, 1, 7, 70, 2048}) {
      for (const int64_t block_size : {1, 16, 65}) {
        SCOPED_TRACE("T " + std::to_string(num_tokens) + " E " + std::to_string(num_experts) +
                     " B " + std::to_string(block_size));
        check(num_experts, block_size, random_ids(num_tokens, 4, num_experts));
      }
    }
  }
}

TEST_F(PermuteAlignGpu, AbnormalIdsAreDroppedAndStridesAreRead) {
  check(4, 2, int_tensor({2, 3}, {2147483647, -2147483648, 3, 3, 3, 4}));
  check(5, 8, random_ids(6, 40, 5).transpose(0, 1));
}

TEST_F(PermuteAlignGpu, AGraphReplaysOnFewerRoutesThanItWasCapturedWith) {
  const MoEPermuteAlignFwdOp op(9, 8);
  const Tensor ids = cuda::to_device(random_ids(400, 2, 9), kGpu);
  op(ids);
  const cuda::OwnedStream stream(kGpu);
  MoEPermuteAlignFwdOp::Output got;
  const cuda::Graph graph = cuda::Graph::capture(stream, [&] { got = op(ids); });
  const Tensor fewer = int_tensor({400, 2}, std::vector<int64_t>(800, -1));
  cuda::copy_to_device(ids.data(), fewer.data(), 800 * sizeof(int32_t), kGpu);
  graph.replay(stream);
  cuda::synchronize(stream);
  const auto want = MoEPermuteAlignFwdOp(9, 8, {.implementation = "reference"})(fewer);
  EXPECT_TRUE(bit_equal(cuda::to_host(got.sorted_route_ids), want.sorted_route_ids));
  EXPECT_TRUE(bit_equal(cuda::to_host(got.block_expert_ids), want.block_expert_ids));
  EXPECT_TRUE(bit_equal(cuda::to_host(got.num_padded_rows), want.num_padded_rows));
}

TEST(PermuteAlignSm90, MoreExpertsThanSharedMemoryHoldsAreRefusedByName) {
  EXPECT_EQ(permute_align::sm90_counting_sort().refusal({.num_experts = 16385, .device = kGpu}),
            "needs E <= 16384, found 16385");
}

}  // namespace
}  // namespace tileops
