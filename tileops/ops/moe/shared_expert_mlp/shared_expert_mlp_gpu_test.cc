// SPDX-License-Identifier: Apache-2.0
// The shared expert on a Hopper GPU, beside the reference; skips where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/gpu.h"
#include "tileops/core/error_testing.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/fused_moe_shared/fused_moe_shared_op.h"
#include "tileops/ops/moe/shared_expert_mlp/shared_expert_mlp_op.h"

namespace tileops {
namespace {

using testing::bit_equal;
using ::testing::HasSubstr;
using testing::kGpu;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;

struct SharedExpertMLPGpu : testing::HopperTest {};

std::vector<Tensor> random_inputs(int64_t num_tokens, int64_t hidden, int64_t inter, DType dtype,
                                  uint64_t seed) {
  return {
      random_tensor({num_tokens, hidden}, dtype, seed),
      random_tensor({2 * inter, hidden}, dtype, seed + 1,
                    1 / std::sqrt(static_cast<double>(hidden))),
      random_tensor({hidden, inter}, dtype, seed + 2, 1 / std::sqrt(static_cast<double>(inter)))};
}

void check(const std::vector<Tensor>& inputs, int64_t tp_size = 1, int64_t tp_rank = 0) {
  testing::beside_reference<SharedExpertMLPFwdOp>({{"tp_size", tp_size}, {"tp_rank", tp_rank}},
                                                  inputs, {0}, testing::compare_first_output);
}

TEST_F(SharedExpertMLPGpu, SmallWorkloadsAgreeWithTheReference) {
  testing::small_workloads_beside_reference<SharedExpertMLPFwdOp>({0},
                                                                  testing::compare_first_output);
}

TEST_F(SharedExpertMLPGpu, EveryRowCountAgreesWithTheReference) {
  uint64_t seed = 0;
  for (const int64_t num_tokens : {0, 1, 15, 16, 17, 63, 65, 96, 97, 128, 193, 257}) {
    const DType dtype = ++seed % 2 == 0 ? DType::kBF16 : DType::kF16;
    SCOPED_TRACE(num_tokens);
    check(random_inputs(num_tokens, 72, 40, dtype, seed));
    check(random_inputs(num_tokens, 33, 19, dtype, seed));
  }
}

TEST_F(SharedExpertMLPGpu, ShardsAreThoseOfTheReference) {
  const std::vector<Tensor> inputs = random_inputs(31, 64, 48, DType::kBF16, 5);
  for (const int64_t tp_size : {2, 3, 4, 48}) {
    for (const int64_t tp_rank : {int64_t{0}, tp_size - 1}) {
      SCOPED_TRACE(std::to_string(tp_rank) + " of " + std::to_string(tp_size));
      check(inputs, tp_size, tp_rank);
    }
  }
}

TEST_F(SharedExpertMLPGpu, LayersOfRealSizesAgreeWithTheCpu) {
  for (const int64_t num_tokens : {1, 300}) {
    const std::vector<Tensor> inputs = random_inputs(num_tokens, 1024, 768, DType::kBF16, 6);
    const auto op = SharedExpertMLPFwdOp::from_params({}, {});
    const Results want = op->call({inputs, {}});
    for (const char* key : {"sm90_weights_on_m", "sm90_strided"}) {
      const auto calls = testing::two_calls_on_gpu<SharedExpertMLPFwdOp>({}, inputs, key);
      EXPECT_LE(relative_error(calls[0][0], want[0]), tolerance(DType::kBF16)) << key;
      EXPECT_TRUE(bit_equal(calls[0][0], calls[1][0])) << key;
    }
  }
}

TEST_F(SharedExpertMLPGpu, StridesAreReadOrRefusedByName) {
  const std::vector<Tensor> inputs{random_tensor({64, 7}, DType::kBF16, 7).transpose(0, 1),
                                   random_tensor({64, 32}, DType::kBF16, 8, .2).transpose(0, 1),
                                   random_tensor({16, 64}, DType::kBF16, 9, .25).transpose(0, 1)};
  check(inputs);
  const auto op = SharedExpertMLPFwdOp::from_params({}, {.implementation = "sm90_weights_on_m"});
  const auto gpu = testing::to_gpu(inputs);
  EXPECT_THAT(error_of([&] { op->call({gpu, {}}); }), HasSubstr("unit inner stride"));
}

TEST_F(SharedExpertMLPGpu, BatchInvarianceKeepsATokensBits) {
  const auto gpu = testing::to_gpu(random_inputs(257, 512, 1024, DType::kBF16, 10));
  const SharedExpertMLPFwdOp op(1, 0, true);
  const Tensor all = cuda::to_host(op(gpu[0], gpu[1], gpu[2]));
  for (const int64_t count : {1, 2, 33, 96, 97, 200}) {
    const Tensor part = cuda::to_host(op(gpu[0].narrow(0, 57, count), gpu[1], gpu[2]));
    EXPECT_TRUE(bit_equal(part, all.narrow(0, 57, count))) << count;
  }
}

TEST_F(SharedExpertMLPGpu, TheLayerWithASharedExpertRunsWholeAndReplays) {
  const FusedMoESharedExpertFwdOp op({.top_k = 2, .renormalize = true});
  const std::vector<Tensor> cpu{random_tensor({70, 128}, DType::kBF16, 1),
                                random_tensor({70, 6}, DType::kF32, 2),
                                random_tensor({6, 128, 128}, DType::kBF16, 3, .1),
                                random_tensor({6, 128, 64}, DType::kBF16, 4, .1),
                                random_tensor({96, 128}, DType::kBF16, 5, .1),
                                random_tensor({128, 48}, DType::kBF16, 6, .1)};
  const auto run = [&](const std::vector<Tensor>& x) {
    return op(x[0], x[1], x[2], x[3], {.shared_w_gate_up = x[4], .shared_w_down = x[5]});
  };
  const std::vector<Tensor> gpu = testing::to_gpu(cpu);
  const auto want = run(cpu), got = run(gpu);
  EXPECT_LE(relative_error(cuda::to_host(got.shared_output), want.shared_output),
            tolerance(DType::kBF16));
  EXPECT_LE(relative_error(cuda::to_host(got.routed_output), want.routed_output),
            2 * tolerance(DType::kBF16));
  const cuda::OwnedStream stream(kGpu);
  FusedMoESharedExpertFwdOp::Output replayed;
  const cuda::Graph graph = cuda::Graph::capture(stream, [&] { replayed = run(gpu); });
  graph.replay(stream);
  cuda::synchronize(stream);
  EXPECT_TRUE(bit_equal(cuda::to_host(replayed.shared_output), cuda::to_host(got.shared_output)));
  EXPECT_TRUE(bit_equal(cuda::to_host(replayed.routed_output), cuda::to_host(got.routed_output)));
}

TEST(SharedExpertMLPSm90, RefusalsSayWhatIsNeededAndWhatWasFound) {
  const auto refused = [](const auto& change) {
    shared_expert_mlp::Call call{.device = kGpu, .num_tokens = 1, .hidden = 64, .inter = 48};
    change(call);
    return shared_expert_mlp::sm90_weights_on_m().refusal(call).value_or("serves");
  };
  using Call = shared_expert_mlp::Call;
  EXPECT_EQ(refused([](Call&) {}), "serves");
  EXPECT_EQ(refused([](Call& c) { c.hidden = 12; }), "needs H in multiples of 8, found 12");
  EXPECT_EQ(refused([](Call& c) { c.shard.tp_size = 4; }),
            "needs S / tp_size in multiples of 8, found 12");
  EXPECT_THAT(refused([](Call& c) { c.out_alignment = 4; }),
              HasSubstr("strides of out aligned to 16 bytes, found 4"));
}

}  // namespace
}  // namespace tileops
