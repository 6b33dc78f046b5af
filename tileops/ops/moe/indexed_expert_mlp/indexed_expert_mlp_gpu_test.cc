// SPDX-License-Identifier: Apache-2.0
// The indexed experts on a Hopper GPU, beside the reference; skips where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tests/support/gpu.h"
#include "tileops/core/error_testing.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_op.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::elements;
using ::testing::HasSubstr;
using testing::int_tensor;
using testing::kGpu;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;

struct IndexedExpertMLPGpu : testing::HopperTest {};

struct Sizes {
  int64_t tokens, top_k, experts, hidden, inter;
};

/// Inputs in the spec's order.
std::vector<Tensor> random_inputs(const Sizes& s, DType dtype, uint64_t seed, bool has_bias) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < s.tokens * s.top_k; ++i) {
    ids.push_back((i * 7 + static_cast<int64_t>(seed)) % (s.experts + 2) - 1);
  }
  std::vector<Tensor> inputs{random_tensor({s.tokens, s.hidden}, dtype, seed),
                             random_tensor({s.tokens, s.top_k}, DType::kF32, seed + 1),
                             int_tensor({s.tokens, s.top_k}, ids),
                             random_tensor({s.experts, 2 * s.inter, s.hidden}, dtype, seed + 2,
                                           1 / std::sqrt(static_cast<double>(s.hidden))),
                             random_tensor({s.experts, s.hidden, s.inter}, dtype, seed + 3,
                                           1 / std::sqrt(static_cast<double>(s.inter)))};
  inputs.push_back(has_bias ? random_tensor({s.experts, 2 * s.inter}, dtype, seed + 4) : Tensor());
  inputs.push_back(has_bias ? random_tensor({s.experts, s.hidden}, dtype, seed + 5) : Tensor());
  return inputs;
}

Params params_of(const GatedActivation& activation, double scale = 1.5) {
  return {{"routed_scaling_factor", scale}, {"activation", activation.to_value()}};
}

void check(const Params& params, const std::vector<Tensor>& inputs) {
  testing::beside_reference<IndexedExpertMLPFwdOp>(params, inputs, {0},
                                                   testing::compare_first_output);
}

TEST_F(IndexedExpertMLPGpu, SmallWorkloadsAgreeWithTheReference) {
  testing::small_workloads_beside_reference<IndexedExpertMLPFwdOp>({0},
                                                                   testing::compare_first_output);
}

TEST_F(IndexedExpertMLPGpu, AGridOfSizesAgreesWithTheReference) {
  const Sizes grid[] = {{1, 1, 1, 8, 8},      {1, 8, 16, 64, 40},   {1, 2, 3, 1032, 8},
                        {2, 3, 5, 2056, 24},  {3, 4, 2, 200, 1600}, {8, 2, 4, 136, 64},
                        {9, 1, 1, 64, 72},    {17, 3, 1, 64, 32},   {33, 7, 20, 72, 16},
                        {64, 4, 8, 32, 48},   {256, 1, 300, 16, 8}, {257, 1, 4, 16, 8},
                        {1, 0, 2, 16, 8},     {5, 2, 3, 17, 8},     {5, 2, 3, 16, 9},
                        {2, 2, 3, 1, 1},      {2, 4, 6, 1024, 512}, {8, 3, 1, 64, 24},
                        {42, 1, 1, 1040, 40}, {45, 1, 1, 72, 1032}, {90, 2, 4, 136, 64}};
  const GatedActivation activations[] = {
      GatedActivation::silu_and_mul, GatedActivation::gelu_and_mul,
      GatedActivation::gelu_tanh_and_mul, GatedActivation::swigluoai()};
  uint64_t seed = 0;
  for (const Sizes& s : grid) {
    const DType dtype = ++seed % 2 == 0 ? DType::kBF16 : DType::kF16;
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE("T " + std::to_string(s.tokens) + " K " + std::to_string(s.top_k) + " H " +
                   std::to_string(s.hidden) + " F " + std::to_string(s.inter));
      check(params_of(activations[seed % 4]), random_inputs(s, dtype, seed, has_bias));
    }
  }
}

TEST_F(IndexedExpertMLPGpu, EveryActivationWithBiasesAgreesInBothTypes) {
  for (const GatedActivation& activation :
       {GatedActivation::silu_and_mul, GatedActivation::gelu_and_mul,
        GatedActivation::gelu_tanh_and_mul, GatedActivation::swigluoai(1.5, 1.0)}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      check(params_of(activation), random_inputs({6, 2, 3, 128, 64}, dtype, 5, true));
    }
  }
}

TEST_F(IndexedExpertMLPGpu, DroppedRoutesAddNothingAndEveryElementIsWritten) {
  const Sizes s{3, 2, 4, 64, 64};
  std::vector<Tensor> inputs = random_inputs(s, DType::kBF16, 3, true);
  inputs[2] = int_tensor({3, 2}, {-1, 4, 2147483647, 1, -2147483648, 4});
  check(params_of(GatedActivation::silu_and_mul), inputs);
  for (const char* key : {"sm90_stream", "sm90_rows"}) {
    const IndexedExpertMLPFwdOp op(1.0, GatedActivation::silu_and_mul, false,
                                   {.implementation = key});
    const auto gpu = testing::to_gpu(inputs);
    const Tensor out = cuda::to_device(testing::poisoned({3, 64}, DType::kBF16), kGpu);
    op(gpu[0], gpu[1], gpu[2], gpu[3], gpu[4], {gpu[5], gpu[6], out});
    const Tensor got = cuda::to_host(out);
    EXPECT_EQ(elements(got.narrow(0, 0, 1)), std::vector<double>(64, 0.0)) << key;
    EXPECT_FALSE(std::isnan(elements(got)[64])) << key;
  }
}

TEST_F(IndexedExpertMLPGpu, StridesAreReadOrRefusedByName) {
  const Sizes s{4, 2, 3, 64, 64};
  std::vector<Tensor> inputs = random_inputs(s, DType::kBF16, 8, true);
  inputs[0] = random_tensor({4, 80}, DType::kBF16, 9).narrow(1, 8, 64);
  inputs[1] = random_tensor({2, 4}, DType::kF32, 10).transpose(0, 1);
  inputs[2] = int_tensor({2, 4}, {0, 1, 2, 0, 1, 2, 1, 2}).transpose(0, 1);
  inputs[3] = random_tensor({128, 3, 72}, DType::kBF16, 11, .1).transpose(0, 1).narrow(2, 0, 64);
  check(params_of(GatedActivation::silu_and_mul), inputs);
  const Tensor w_down = inputs[4];
  inputs[4] = random_tensor({3, 64, 64}, DType::kBF16, 12, .2).transpose(1, 2);
  check(params_of(GatedActivation::silu_and_mul), inputs);
  const auto refused = [&] {
    const auto op = IndexedExpertMLPFwdOp::from_params({}, {.implementation = "sm90_stream"});
    const auto gpu = testing::to_gpu(inputs);
    return error_of([&] { op->call({gpu, {}}); });
  };
  EXPECT_THAT(refused(), HasSubstr("unit inner stride"));
  inputs[4] = w_down;
  inputs[0] = random_tensor({4, 81}, DType::kBF16, 9).narrow(1, 0, 64);
  EXPECT_THAT(refused(), HasSubstr("strides of hidden_states aligned to 16 bytes, found 2"));
  check(params_of(GatedActivation::silu_and_mul), inputs);
}

TEST_F(IndexedExpertMLPGpu, AnOutOfAnyStridesIsWritten) {
  const Sizes s{5, 2, 3, 64, 64};
  const std::vector<Tensor> inputs = random_inputs(s, DType::kF16, 8, false);
  const auto gpu = testing::to_gpu(inputs);
  const IndexedExpertMLPFwdOp op;
  const Tensor want = op(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]);
  const Tensor out = cuda::to_device(testing::poisoned({64, 5}, DType::kF16), kGpu);
  op(gpu[0], gpu[1], gpu[2], gpu[3], gpu[4], {.out = out.transpose(0, 1)});
  EXPECT_LE(relative_error(cuda::to_host(out).transpose(0, 1), want), tolerance(DType::kF16));
}

TEST_F(IndexedExpertMLPGpu, ALayerOfRealSizesAgreesWithTheCpu) {
  for (const int64_t tokens : {1, 5, 24}) {
    const Sizes s{tokens, 8, 12, 2048, 768};
    const std::vector<Tensor> inputs = random_inputs(s, DType::kBF16, 20, true);
    const auto op = IndexedExpertMLPFwdOp::from_params({}, {});
    const Results want = op->call({inputs, {}});
    const auto calls = testing::two_calls_on_gpu<IndexedExpertMLPFwdOp>({}, inputs, "sm90_stream");
    EXPECT_LE(relative_error(calls[0][0], want[0]), tolerance(DType::kBF16)) << tokens;
    EXPECT_TRUE(bit_equal(calls[0][0], calls[1][0])) << tokens;
  }
}

TEST_F(IndexedExpertMLPGpu, AGraphReplaysOnChangedRouting) {
  const Sizes s{4, 2, 6, 128, 64};
  const IndexedExpertMLPFwdOp op;
  const auto gpu = testing::to_gpu(random_inputs(s, DType::kBF16, 1, false));
  const auto call = [&] { return op(gpu[0], gpu[1], gpu[2], gpu[3], gpu[4]); };
  call();
  const cuda::OwnedStream stream(kGpu);
  Tensor output;
  const cuda::Graph graph = cuda::Graph::capture(stream, [&] { output = call(); });
  for (const int64_t first : {0, 5, -1}) {  // -1: all dropped
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 8; ++i) ids.push_back(first < 0 ? -1 : (first + i) % 6);
    const Tensor routes = int_tensor({4, 2}, ids);
    cuda::copy_to_device(gpu[2].data(), routes.data(), 8 * sizeof(int32_t), kGpu);
    for (int i = 0; i < 50; ++i) graph.replay(stream);
    cuda::synchronize(stream);
    EXPECT_TRUE(bit_equal(cuda::to_host(output), cuda::to_host(call()))) << first;
  }
}

/// Launches of several streams share the SMs, so that not all CTAs of one are resident together.
TEST_F(IndexedExpertMLPGpu, EightThreadsOnEightStreamsFinishWithEqualBits) {
  const Sizes s{2, 4, 16, 512, 256};
  const IndexedExpertMLPFwdOp op;
  const auto gpu = testing::to_gpu(random_inputs(s, DType::kBF16, 1, false));
  const auto call = [&] { return op(gpu[0], gpu[1], gpu[2], gpu[3], gpu[4]); };
  const Tensor want = cuda::to_host(call());
  std::vector<std::thread> threads;
  std::atomic<int> num_equal = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const cuda::OwnedStream stream(kGpu);
      const StreamGuard guard(stream);
      Tensor got;
      for (int turn = 0; turn < 100; ++turn) got = call();
      num_equal += bit_equal(cuda::to_host(got), want);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_equal, 8);
}

TEST(IndexedExpertMLPSm90, RefusalsSayWhatIsNeededAndWhatWasFound) {
  const auto refused = [](const auto& change) {
    indexed_expert_mlp::Call call{
        .device = kGpu, .num_tokens = 1, .top_k = 8, .num_experts = 16, .hidden = 64, .inter = 64};
    change(call);
    return indexed_expert_mlp::sm90_stream().refusal(call).value_or("serves");
  };
  using Call = indexed_expert_mlp::Call;
  EXPECT_EQ(refused([](Call&) {}), "serves");
  EXPECT_EQ(refused([](Call& c) { c.num_tokens = 33; }), "needs T * K <= 256, found 264");
  EXPECT_EQ(refused([](Call& c) { c.hidden = 12; }), "needs H in multiples of 8, found 12");
  EXPECT_EQ(refused([](Call& c) { c.inter = 0; }), "needs F in multiples of 8, found 0");
  EXPECT_THAT(refused([](Call& c) { c.weights_alignment = 8; }),
              HasSubstr("strides of the weights aligned to 16 bytes, found 8"));
  EXPECT_THAT(refused([](Call& c) { c.batch_invariant = true; }), HasSubstr("bits would depend"));
}

}  // namespace
}  // namespace tileops
