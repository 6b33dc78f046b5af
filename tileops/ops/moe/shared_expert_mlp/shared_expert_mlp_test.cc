// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/against_reference.h"
#include "tests/support/moe_definition.h"
#include "tileops/core/error.h"
#include "tileops/ops/moe/packed_experts.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::elements;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;

struct Dense {
  Tensor x, w_gate_up, w_down;
};

Dense random_dense(int64_t num_tokens, int64_t hidden, int64_t inter, DType dtype, uint64_t seed) {
  return {random_tensor({num_tokens, hidden}, dtype, seed),
          random_tensor({2 * inter, hidden}, dtype, seed + 1, 1 / std::sqrt(hidden)),
          random_tensor({hidden, inter}, dtype, seed + 2, 1 / std::sqrt(inter))};
}

std::vector<double> definition(const Dense& dense) {
  const testing::Experts one{
      dense.w_gate_up.reshape({1, dense.w_gate_up.size(0), dense.w_gate_up.size(1)}),
      dense.w_down.reshape({1, dense.w_down.size(0), dense.w_down.size(1)})};
  std::vector<double> all;
  for (int64_t t = 0; t < dense.x.size(0); ++t) {
    for (double value : testing::expert_output(one, dense.x, t, 0)) all.push_back(value);
  }
  return all;
}

TEST(SharedExpertMLP, EveryImplementationAgreesWithTheReferenceOnEverySmallWorkload) {
  testing::against_reference<SharedExpertMLPFwdOp>(testing::all_outputs_within());
}

TEST(SharedExpertMLP, EveryRowCountAgreesWithTheDefinition) {
  uint64_t seed = 0;
  for (int64_t num_tokens : {0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257}) {
    const DType dtype = ++seed % 2 == 0 ? DType::kBF16 : DType::kF16;
    const Dense d = random_dense(num_tokens, 33, 19, dtype, seed * 10);
    EXPECT_LE(
        relative_error(elements(SharedExpertMLPFwdOp()(d.x, d.w_gate_up, d.w_down)), definition(d)),
        tolerance(dtype))
        << "T " << num_tokens;
  }
}

TEST(SharedExpertMLP, ShardsAddUp) {
  const Dense d = random_dense(31, 40, 36, DType::kBF16, 5);
  const std::vector<double> want = definition(d);
  for (const char* key : {"reference", "cpu_blocked"}) {
    for (int64_t tp_size : {1, 2, 3, 4, 36}) {
      std::vector<double> sum(want.size());
      for (int64_t rank = 0; rank < tp_size; ++rank) {
        const SharedExpertMLPFwdOp op(tp_size, rank, false, {.implementation = key});
        const std::vector<double> part = elements(op(d.x, d.w_gate_up, d.w_down));
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
      EXPECT_LE(relative_error(sum, want), tolerance(DType::kBF16))
          << key << " tp_size " << tp_size;
    }
  }
}

TEST(SharedExpertMLP, BatchInvarianceKeepsATokensBits) {
  const Dense d = random_dense(65, 64, 40, DType::kBF16, 6);
  for (int64_t tp_size : {1, 2}) {
    const SharedExpertMLPFwdOp op(tp_size, 0, true);
    const Tensor all = op(d.x, d.w_gate_up, d.w_down);
    for (int64_t count = 1; count <= 65; ++count) {
      const Tensor part = op(d.x.narrow(0, 65 - count, count), d.w_gate_up, d.w_down);
      EXPECT_TRUE(bit_equal(part, all.narrow(0, 65 - count, count))) << count;
    }
  }
}

TEST(SharedExpertMLP, StridesOfEveryTensorAreHonoured) {
  const Dense d{random_tensor({24, 7}, DType::kBF16, 7).transpose(0, 1),
                random_tensor({24, 32}, DType::kBF16, 8, 0.2).transpose(0, 1),
                random_tensor({16, 24}, DType::kBF16, 9, 0.25).transpose(0, 1)};
  const Dense plain{d.x, d.w_gate_up.contiguous(), d.w_down.contiguous()};
  for (const char* key : {"reference", "cpu_blocked"}) {
    const Tensor out = testing::poisoned({24, 7}, DType::kBF16).transpose(0, 1);
    SharedExpertMLPFwdOp(1, 0, false, {.implementation = key})(d.x, d.w_gate_up, d.w_down, out);
    EXPECT_LE(relative_error(elements(out), definition(plain)), tolerance(DType::kBF16)) << key;
  }
}

TEST(SharedExpertMLP, PackedWeightsServeWhileTheyLive) {
  const Dense d = random_dense(9, 40, 24, DType::kBF16, 11);
  const std::vector<double> want = definition(d);
  const SharedExpertMLPFwdOp op;
  {
    const PackedExperts packed(d.w_gate_up, d.w_down);
    // What the packed copy holds is what is read, not the tensors.
    std::memset(d.w_gate_up.data(), 0, 64);
    std::memset(d.w_down.data(), 0, 64);
    EXPECT_LE(relative_error(elements(op(d.x, d.w_gate_up, d.w_down)), want),
              tolerance(DType::kBF16));
  }
  EXPECT_GT(relative_error(elements(op(d.x, d.w_gate_up, d.w_down)), want),
            tolerance(DType::kBF16));
}

TEST(SharedExpertMLP, ErrorsNameTheShard) {
  EXPECT_THROW(SharedExpertMLPFwdOp(2, 2), Error);
  EXPECT_THROW(SharedExpertMLPFwdOp(0, 0), Error);
  const Dense d = random_dense(2, 8, 5, DType::kBF16, 10);
  EXPECT_THROW(SharedExpertMLPFwdOp(2, 0)(d.x, d.w_gate_up, d.w_down), Error);
}

}  // namespace
}  // namespace tileops
