// SPDX-License-Identifier: Apache-2.0
// Two grouped GEMMs of which the second begins while the first ends; skips without a Hopper GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/gpu.h"
#include "tileops/cuda/graph.h"
#include "tileops/cuda/launch.h"
#include "tileops/cuda/launch_batch.h"
#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::kGpu;
using testing::random_tensor;

constexpr int64_t kExperts = 6, kHidden = 512, kInter = 1088;

Tensor random_on_gpu(const Shape& shape, uint64_t seed, double scale = 1.0) {
  return cuda::to_device(random_tensor(shape, DType::kBF16, seed, scale), kGpu);
}

struct Rows {
  Tensor values, metadata;

  /// `mean` rows an expert, from none to a few times as many.
  static Rows random(int64_t mean, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> rows_of_expert(1.0 / static_cast<double>(mean));
    std::vector<int64_t> ends;
    int64_t end = 0;
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      end += static_cast<int64_t>(rows_of_expert(random));
      ends.push_back(end);
    }
    return {random_on_gpu({end, kHidden}, seed),
            cuda::to_device(testing::int_tensor({kExperts}, ends), kGpu)};
  }
};

struct ExpertMlpGpu : testing::HopperTest {
  void SetUp() override {
    HopperTest::SetUp();
    if (IsSkipped()) return;
    w_gate_up = random_on_gpu({kExperts, 2 * kInter, kHidden}, 1, 0.05);
    w_down = random_on_gpu({kExperts, kHidden, kInter}, 2, 0.05);
    for (const int64_t mean : {3, 40, 90, 200, 700}) {
      for (uint64_t seed = 3; seed < 7; ++seed) {
        cases.push_back(Rows::random(mean, seed));  // rows of the call before would be seen
      }
    }
    cuda::set_batched_launches(false);  // launches that wait for each other
    for (const Rows& rows : cases) want.push_back(cuda::to_host(run(rows)));
    cuda::set_batched_launches(true);
  }
  void TearDown() override { cuda::set_batched_launches(true); }

  Tensor run(const Rows& rows) const { return op(rows.values, w_gate_up, w_down, rows.metadata); }

  const MoEExpertMLPFwdOp op{MGroupedLayout::contiguous()};
  Tensor w_gate_up, w_down;
  std::vector<Rows> cases;
  std::vector<Tensor> want;
};

TEST_F(ExpertMlpGpu, DownThatAwaitsRowsHasTheBitsOfOneThatWaitsForAll) {
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<Tensor> got;
    for (const Rows& rows : cases) got.push_back(run(rows));
    for (size_t i = 0; i < cases.size(); ++i) {
      ASSERT_TRUE(bit_equal(cuda::to_host(got[i]), want[i])) << "case " << i << ", turn " << turn;
    }
  }
}

/// Ends that fall and rise again make more tiles than rows could have.
TEST_F(ExpertMlpGpu, MetadataThatMakesNoSenseHangsNothingAndLeavesNothingBehind) {
  constexpr int64_t kMany = 4096, kRows = 1000;
  std::vector<int64_t> ends;
  for (int64_t expert = 0; expert < kMany; ++expert) ends.push_back(expert % 2 == 0 ? kRows : 0);
  const auto metadata = [](const std::vector<int64_t>& values) {
    return cuda::to_device(testing::int_tensor({kMany}, values), kGpu);
  };
  const Tensor rows = random_on_gpu({kRows, 64}, 1);
  const Tensor up = random_on_gpu({kMany, 128, 64}, 2, 0.1),
               down = random_on_gpu({kMany, 64, 64}, 3);
  for (int call = 0; call < 3; ++call) op(rows, up, down, metadata(ends));
  std::vector<int64_t> sound(kMany, kRows);
  for (int64_t expert = 0; expert < kMany; ++expert) sound[expert] = std::min(kRows, expert / 2);
  const Tensor got = cuda::to_host(op(rows, up, down, metadata(sound)));
  cuda::set_batched_launches(false);
  EXPECT_TRUE(bit_equal(cuda::to_host(op(rows, up, down, metadata(sound))), got));
}

TEST_F(ExpertMlpGpu, AlsoInACapturedGraph) {
  const cuda::OwnedStream stream(kGpu);
  std::vector<Tensor> got(cases.size());
  const cuda::Graph graph = cuda::Graph::capture(stream, [&] {
    for (size_t i = 0; i < cases.size(); ++i) got[i] = run(cases[i]);
  });
  for (int replay = 0; replay < 50; ++replay) graph.replay(stream);
  cuda::synchronize(stream);
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(bit_equal(cuda::to_host(got[i]), want[i])) << "case " << i;
  }
}

TEST_F(ExpertMlpGpu, AlsoFromThreadsThatShareAStream) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t turn = 0; turn < 100; ++turn) {
        const size_t i = (thread * 5 + turn) % cases.size();
        if (!bit_equal(cuda::to_host(run(cases[i])), want[i])) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tileops
