// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/pre_permute/pre_permute_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/against_reference.h"
#include "tileops/ops/moe/post_permute/post_permute_op.h"

namespace tileops {
namespace {

using testing::elements;
using ::testing::ElementsAre;
using testing::int_tensor;
using testing::random_tensor;

/// The rows that an expert has: the rest of expert_input is unspecified.
std::vector<double> valid_elements(const MGroupedLayout& layout, const Tensor& metadata,
                                   int64_t num_experts, const Tensor& inverse,
                                   const Tensor& expert_input) {
  const RowMatrix rows = row_matrix(layout, expert_input);
  std::vector<double> values;
  for (double row : elements(inverse)) {
    if (row < 0) continue;
    for (int64_t h = 0; h < rows.num_columns; ++h) {
      const int64_t offset = rows.offset(static_cast<int64_t>(row)) + h;
      values.push_back(
          load_element(expert_input.dtype(), expert_input.data_as<uint16_t>() + offset));
    }
  }
  int64_t num_rows = 0;
  for (const ExpertRows& each : expert_rows(layout, metadata, num_experts, rows.num_rows))
    num_rows += each.num_rows;
  if (!layout.is_per_row()) {
    EXPECT_EQ(num_rows * rows.num_columns, static_cast<int64_t>(values.size()));
  }
  return values;
}

TEST(PrePermute, EveryImplementationAgreesWithTheReferenceOnEverySmallWorkload) {
  testing::against_reference<MoEPrePermuteFwdOp>(
      [](const spec::WorkloadCase& which, const auto&, const Results& got, const Results& want) {
        const MGroupedLayout layout = MGroupedLayout::from_value(which.params.at("layout"));
        const int64_t num_experts = *which.params.at("num_local_experts").as_int();
        EXPECT_EQ(elements(got[1]), elements(want[1]));
        EXPECT_EQ(elements(got[2]), elements(want[2]));
        EXPECT_EQ(valid_elements(layout, got[1], num_experts, got[2], got[0]),
                  valid_elements(layout, want[1], num_experts, want[2], want[0]));
      });
}

TEST(PrePermute, ByHand) {
  const Tensor x = Tensor::from_values({3, 1}, DType::kBF16, std::vector<double>{10, 20, 30});
  const Tensor ids =
      int_tensor({3, 2}, {2, 0, 2, 2, -1, 0});  // a duplicate, and one that is dropped
  struct Want {
    MGroupedLayout layout;
    std::vector<double> metadata, inverse;
  };
  const Want wants[] = {
      {MGroupedLayout::tight_physical_psum(), {2, 2, 5}, {2, 0, 3, 4, -1, 1}},
      {MGroupedLayout::tight_per_row(), {0, 0, 2, 2, 2, 3}, {2, 0, 3, 4, -1, 1}},
      {MGroupedLayout::aligned_physical_psum(4), {2, 4, 7}, {4, 0, 5, 6, -1, 1}},
      {MGroupedLayout::aligned_per_row(2), {0, 0, 2, 2, 2, 2, 3, 3, 3, 3}, {2, 0, 3, 4, -1, 1}},
      {MGroupedLayout::masked(2), {2, 0, 2}, {4, 0, 5, -1, -1, 1}}};
  for (const Want& want : wants) {
    for (const char* key : {"reference", "cpu_gather"}) {
      SCOPED_TRACE(to_string(want.layout.to_value()) + " by " + key);
      const auto out = MoEPrePermuteFwdOp(want.layout, 3, {.implementation = key})(x, ids);
      EXPECT_EQ(elements(out.layout_metadata), want.metadata);
      EXPECT_EQ(elements(out.inverse_indices), want.inverse);
      for (size_t route = 0; route < 6; ++route) {
        if (want.inverse[route] < 0) continue;
        const auto row = static_cast<int64_t>(want.inverse[route]);
        EXPECT_EQ(load_element(DType::kBF16, out.expert_input.data_as<uint16_t>() + row),
                  10.0 * static_cast<double>(route / 2 + 1));
      }
    }
  }
}

TEST(PrePermute, NoTokensStillWriteTheMetadata) {
  const Tensor x = random_tensor({0, 8}, DType::kBF16, 1), ids = int_tensor({0, 2}, {});
  const auto metadata = [&](const MGroupedLayout& layout) {
    return elements(MoEPrePermuteFwdOp(layout, 3)(x, ids).layout_metadata);
  };
  EXPECT_THAT(metadata(MGroupedLayout::tight_physical_psum()), ElementsAre(0, 0, 0));
  EXPECT_THAT(metadata(MGroupedLayout::masked(4)), ElementsAre(0, 0, 0));
  EXPECT_THAT(metadata(MGroupedLayout::aligned_per_row(2)), ElementsAre(3, 3, 3, 3));
}

TEST(PrePermute, RoundTripWithPostPermuteGivesTheTokensBack) {
  const MGroupedLayout layouts[] = {
      MGroupedLayout::tight_physical_psum(), MGroupedLayout::tight_per_row(),
      MGroupedLayout::aligned_physical_psum(16), MGroupedLayout::aligned_per_row(64),
      MGroupedLayout::masked(2 * 257)};
  uint64_t seed = 0;
  for (const MGroupedLayout& layout : layouts) {
    for (int64_t num_tokens : {0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257}) {
      const Tensor x = random_tensor({num_tokens, 24}, DType::kBF16, ++seed);
      std::vector<int64_t> values;
      for (int64_t i = 0; i < 2 * num_tokens; ++i)
        values.push_back((i * 31 + static_cast<int64_t>(seed)) % 5);
      const auto out = MoEPrePermuteFwdOp(layout, 5)(x, int_tensor({num_tokens, 2}, values));
      const Tensor halves =
          Tensor::from_values({num_tokens, 2}, DType::kF32,
                              std::vector<double>(static_cast<size_t>(2 * num_tokens), 0.5));
      const Tensor back =
          MoEPostPermuteFwdOp(layout)(out.expert_input, halves, out.inverse_indices);
      EXPECT_TRUE(testing::bit_equal(back, x))
          << to_string(layout.to_value()) << " T " << num_tokens;
    }
  }
}

TEST(PrePermute, StridedRowsAndIdsAreHonoured) {
  const Tensor x = random_tensor({16, 9}, DType::kF16, 2).transpose(0, 1).narrow(1, 2, 12);
  const Tensor ids =
      int_tensor({2, 9}, {0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 2, 2, 1, 1, 1, 0, 0, 0}).transpose(0, 1);
  const auto want =
      MoEPrePermuteFwdOp(MGroupedLayout::contiguous(), 3)(x.contiguous(), ids.contiguous());
  for (const char* key : {"reference", "cpu_gather"}) {
    const auto got =
        MoEPrePermuteFwdOp(MGroupedLayout::contiguous(), 3, {.implementation = key})(x, ids);
    EXPECT_TRUE(testing::bit_equal(got.expert_input, want.expert_input)) << key;
    EXPECT_TRUE(testing::bit_equal(got.inverse_indices, want.inverse_indices)) << key;
  }
}

}  // namespace
}  // namespace tileops
