// SPDX-License-Identifier: Apache-2.0
// The whole layer on a Hopper GPU, beside the CPU's; skips where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/gpu.h"
#include "tileops/core/error_testing.h"
#include "tileops/cuda/context.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/launch_batch.h"
#include "tileops/ops/moe/fused_moe/fused_moe_op.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::elements;
using testing::kGpu;
using testing::random_tensor;

struct FusedMoEGpu : testing::HopperTest {};

struct Sizes {
  int64_t tokens, experts, hidden, inter, top_k;
};

struct Layer {
  Tensor hidden, gating, w_gate_up, w_down, b_gate_up, b_down;

  static Layer random(const Sizes& s, DType dtype, uint64_t seed) {
    return {random_tensor({s.tokens, s.hidden}, dtype, seed),
            random_tensor({s.tokens, s.experts}, DType::kF32, seed + 1, 2.0),
            random_tensor({s.experts, 2 * s.inter, s.hidden}, dtype, seed + 2,
                          1 / std::sqrt(static_cast<double>(s.hidden))),
            random_tensor({s.experts, s.hidden, s.inter}, dtype, seed + 3,
                          1 / std::sqrt(static_cast<double>(s.inter))),
            random_tensor({s.experts, 2 * s.inter}, dtype, seed + 4),
            random_tensor({s.experts, s.hidden}, dtype, seed + 5)};
  }
  Layer on(Device device) const {
    const auto put = [&](const Tensor& tensor) { return cuda::to_device(tensor, device); };
    return {put(hidden), put(gating), put(w_gate_up), put(w_down), put(b_gate_up), put(b_down)};
  }
  Layer on_gpu() const { return on(kGpu); }
  FusedMoEFwdOp::Output run(const FusedMoEFwdOp& op) const {
    return op(hidden, gating, w_gate_up, w_down, {.b_gate_up = b_gate_up, .b_down = b_down});
  }
};

Routing routing_of(const Sizes& s) {
  return {.top_k = s.top_k, .renormalize = true, .routed_scaling_factor = 1.5};
}

TEST_F(FusedMoEGpu, TheWholeLayerAgreesWithTheCpu) {
  const Sizes sizes[] = {{1, 8, 128, 64, 2},  {33, 8, 128, 96, 2}, {300, 16, 256, 64, 4},
                         {64, 5, 63, 31, 5},  {0, 8, 128, 64, 2},  {700, 1, 64, 64, 1},
                         {40, 300, 32, 16, 8}};
  for (const Sizes& s : sizes) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      SCOPED_TRACE("T " + std::to_string(s.tokens) + " E " + std::to_string(s.experts));
      const FusedMoEFwdOp op(routing_of(s), {.return_routing = true});
      const Layer cpu = Layer::random(s, dtype, 7), gpu = cpu.on_gpu();
      const FusedMoEFwdOp::Output want = cpu.run(op), got = gpu.run(op), again = gpu.run(op);
      EXPECT_EQ(elements(cuda::to_host(got.topk_ids)), elements(want.topk_ids));
      EXPECT_EQ(elements(cuda::to_host(got.tokens_per_expert)), elements(want.tokens_per_expert));
      const Tensor output = cuda::to_host(got.output);
      EXPECT_LE(testing::relative_error(output, want.output), 2 * testing::tolerance(dtype));
      EXPECT_TRUE(bit_equal(output, cuda::to_host(again.output))) << "from run to run";
    }
  }
}

TEST_F(FusedMoEGpu, DroppedRoutesAddNothing) {
  const Sizes s{50, 6, 64, 64, 3};
  const Layer cpu = Layer::random(s, DType::kBF16, 3), gpu = cpu.on_gpu();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 150; ++i) ids.push_back(i < 9 ? -1 : (i * 31) % 8 - 1);
  const Tensor topk_ids = testing::int_tensor({50, 3}, ids);
  const Tensor weights = random_tensor({50, 3}, DType::kF32, 9);
  const FusedMoEExpertsFwdOp op;
  const Tensor want = op(cpu.hidden, weights, topk_ids, cpu.w_gate_up, cpu.w_down);
  const Tensor got = cuda::to_host(op(gpu.hidden, cuda::to_device(weights, kGpu),
                                      cuda::to_device(topk_ids, kGpu), gpu.w_gate_up, gpu.w_down));
  EXPECT_LE(testing::relative_error(got, want), 2 * testing::tolerance(DType::kBF16));
  EXPECT_EQ(elements(got.narrow(0, 0, 3)), std::vector<double>(3 * 64, 0.0));
}

TEST_F(FusedMoEGpu, AGraphReplaysOnChangedContents) {
  const Sizes s{200, 8, 128, 64, 2};
  const FusedMoEFwdOp op(routing_of(s));
  const Layer gpu = Layer::random(s, DType::kBF16, 1).on_gpu();
  gpu.run(op);
  const cuda::OwnedStream stream(kGpu);
  Tensor output;
  const cuda::Graph graph = cuda::Graph::capture(stream, [&] { output = gpu.run(op).output; });
  for (const uint64_t seed : {1, 2, 3, 1}) {
    const Layer contents = Layer::random(s, DType::kBF16, seed);
    const auto put = [](const Tensor& to, const Tensor& from) {
      cuda::copy_to_device(to.data(), from.data(),
                           static_cast<size_t>(from.num_elements() * dtype_bytes(from.dtype())),
                           kGpu);
    };
    put(gpu.hidden, contents.hidden);
    put(gpu.gating, contents.gating);
    for (int i = 0; i < 10; ++i) graph.replay(stream);
    cuda::synchronize(stream);
    EXPECT_TRUE(bit_equal(cuda::to_host(output), cuda::to_host(gpu.run(op).output)))
        << "contents " << seed;
  }
}

/// down's weights and metadata are read before gate_up has ended: each call must see its own.
TEST_F(FusedMoEGpu, CallsOneAfterAnotherKeepTheirOwnRouting) {
  const FusedMoEExpertsFwdOp op({.small_route = SmallRoute::kNever});
  for (const int64_t tokens : {40, 300}) {
    const Layer gpu = Layer::random({tokens, 8, 512, 256, 2}, DType::kBF16, 1).on_gpu();
    const Tensor weights = cuda::to_device(random_tensor({tokens, 2}, DType::kF32, 9), kGpu);
    std::vector<Tensor> ids;
    for (int64_t i = 0; i < 4; ++i) {
      std::vector<int64_t> routes;
      for (int64_t r = 0; r < 2 * tokens; ++r) routes.push_back((r * (2 * i + 1) + i) % (8 - i));
      ids.push_back(cuda::to_device(testing::int_tensor({tokens, 2}, routes), kGpu));
    }
    const auto call = [&](const Tensor& routed) {
      return op(gpu.hidden, weights, routed, gpu.w_gate_up, gpu.w_down);
    };
    std::vector<Tensor> want;
    for (const Tensor& routed : ids) want.push_back(cuda::to_host(call(routed)));
    std::vector<Tensor> got;
    for (size_t turn = 0; turn < 200; ++turn) got.push_back(call(ids[turn % ids.size()]));
    for (size_t turn = 0; turn < got.size(); ++turn) {
      ASSERT_TRUE(bit_equal(cuda::to_host(got[turn]), want[turn % ids.size()])) << turn;
    }
  }
}

/// Eight threads, each on a stream of its own (one on the default stream), call layers of changing
/// sizes and weights without a wait between them.
TEST_F(FusedMoEGpu, LaunchesInOneRequestComputeTheSameBits) {
  const Sizes sizes[] = {{4, 8, 512, 256, 2},  {40, 8, 512, 256, 2},   {41, 8, 512, 256, 2},
                         {64, 8, 512, 256, 2}, {600, 16, 256, 128, 4}, {40, 8, 128, 64, 2}};
  std::vector<Layer> layers;
  std::vector<std::unique_ptr<FusedMoEFwdOp>> ops;
  std::vector<Tensor> want;
  cuda::set_batched_launches(false);
  for (size_t i = 0; i < std::size(sizes); ++i) {
    layers.push_back(Layer::random(sizes[i], DType::kBF16, i).on_gpu());
    ops.push_back(std::make_unique<FusedMoEFwdOp>(routing_of(sizes[i])));
    want.push_back(cuda::to_host(layers[i].run(*ops[i]).output));
  }
  cuda::set_batched_launches(true);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      std::optional<cuda::OwnedStream> owned;
      if (thread > 0) owned.emplace(kGpu);
      const Stream stream = owned ? owned->get() : Stream{kGpu, nullptr};
      const StreamGuard guard(stream);
      std::vector<std::pair<size_t, Tensor>> got;
      for (size_t turn = 0; turn < 120; ++turn) {
        const size_t i = (turn * 7 + turn / 6 + static_cast<size_t>(thread)) % layers.size();
        got.emplace_back(i, layers[i].run(*ops[i]).output);
      }
      cuda::synchronize(stream);
      for (const auto& [i, output] : got) {
        if (!bit_equal(cuda::to_host(output), want[i])) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(FusedMoEGpu, FewRoutesTakeTheIndexedPathAndBothPathsAgree) {
  const Sizes s{2, 4, 64, 64, 2};
  const Layer gpu = Layer::random(s, DType::kBF16, 1).on_gpu();
  const Tensor ids = cuda::to_device(testing::int_tensor({2, 2}, {0, 1, 2, 3}), kGpu);
  const Tensor weights = cuda::to_device(random_tensor({2, 2}, DType::kF32, 9), kGpu);
  const FusedMoEExpertsFwdOp automatic, never({.small_route = SmallRoute::kNever});
  const auto call = [&](const FusedMoEExpertsFwdOp& op) {
    return cuda::to_host(op(gpu.hidden, weights, ids, gpu.w_gate_up, gpu.w_down));
  };
  const Tensor indexed = call(automatic), permuted = call(never);
  EXPECT_EQ(automatic.last_call()->stages("indexed_small_route").size(), 1U);
  EXPECT_EQ(never.last_call()->stages("expert_mlp").size(), 1U);
  EXPECT_LE(testing::relative_error(indexed, permuted), 2 * testing::tolerance(DType::kBF16));
}

constexpr Device kSecondGpu{DeviceType::kCUDA, 1};

struct FusedMoETwoGpus : testing::HopperTest {
  void SetUp() override {
    HopperTest::SetUp();
    if (!IsSkipped() && cuda::num_devices() < 2) GTEST_SKIP() << "there is one GPU";
  }
};

TEST_F(FusedMoETwoGpus, TensorsOfTheOtherDeviceAreServedThereAndTheCurrentOneStays) {
  const Tensor first = cuda::to_device(random_tensor({1}, DType::kF32, 1), kGpu);
  const Device current = cuda::current_device();
  for (const int64_t tokens : {2, 300}) {
    const Sizes s{tokens, 8, 128, 64, 2};
    const FusedMoEFwdOp op(routing_of(s));
    const Layer cpu = Layer::random(s, DType::kBF16, 7);
    const Tensor want = cuda::to_host(cpu.on_gpu().run(op).output);
    const Tensor got = cpu.on(kSecondGpu).run(op).output;
    EXPECT_EQ(got.device(), kSecondGpu);
    EXPECT_TRUE(bit_equal(cuda::to_host(got), want)) << "T " << tokens;
    EXPECT_EQ(cuda::current_device(), current);
  }
}

TEST_F(FusedMoETwoGpus, TensorsOnTwoDevicesAreAnErrorOfOneLine) {
  const Sizes s{4, 8, 128, 64, 2};
  const FusedMoEFwdOp op(routing_of(s));
  Layer layer = Layer::random(s, DType::kBF16, 7).on_gpu();
  layer.w_down = cuda::to_device(cuda::to_host(layer.w_down), kSecondGpu);
  const std::string error = error_of([&] { layer.run(op); });
  EXPECT_THAT(error, ::testing::HasSubstr("w_down"));
  EXPECT_THAT(error, ::testing::HasSubstr("cuda:1"));
  EXPECT_EQ(error.find('\n'), error.npos);
}

}  // namespace
}  // namespace tileops
