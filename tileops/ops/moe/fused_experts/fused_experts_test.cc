// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/fused_experts/fused_experts_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "tests/support/against_reference.h"
#include "tests/support/moe_definition.h"
#include "tileops/core/error_testing.h"
#include "tileops/cpu/parallel.h"
#include "tileops/op/trace.h"
#include "tileops/ops/moe/packed_experts.h"
#include "tileops/ops/moe/workspace.h"

namespace tileops {
namespace {

using ::testing::AllOf;
using testing::bit_equal;
using testing::elements;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::int_tensor;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;

struct Problem {
  testing::Experts experts;
  Tensor x, weights, ids;
};

Problem random_problem(int64_t num_tokens, int64_t top_k, int64_t num_experts, int64_t hidden,
                       int64_t inter, DType dtype, uint64_t seed) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < num_tokens * top_k; ++i) {
    ids.push_back((i * 7919 + static_cast<int64_t>(seed)) % (num_experts + 1) -
                  (i % 11 == 0 ? 1 : 0));
  }
  return {{random_tensor({num_experts, 2 * inter, hidden}, dtype, seed, 1 / std::sqrt(hidden)),
           random_tensor({num_experts, hidden, inter}, dtype, seed + 1, 1 / std::sqrt(inter))},
          random_tensor({num_tokens, hidden}, dtype, seed + 2),
          random_tensor({num_tokens, top_k}, DType::kF32, seed + 3),
          int_tensor({num_tokens, top_k}, ids)};
}

Tensor run(const FusedMoEExpertsFwdOp& op, const Problem& p, const Tensor& output = {}) {
  return op(p.x, p.weights, p.ids, p.experts.w_gate_up, p.experts.w_down,
            {.b_gate_up = p.experts.b_gate_up, .b_down = p.experts.b_down, .output = output});
}

TEST(FusedMoEExperts, TheStagesAgreeWithTheReferenceOnEverySmallWorkload) {
  testing::against_reference<FusedMoEExpertsFwdOp>(testing::all_outputs_within());
}

TEST(FusedMoEExperts, BothPathsAgreeWithTheDefinitionAtEveryRowCount) {
  uint64_t seed = 0;
  for (int64_t num_tokens : {0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257}) {
    const DType dtype = ++seed % 2 == 0 ? DType::kBF16 : DType::kF16;
    const Problem p = random_problem(num_tokens, 1 + static_cast<int64_t>(seed % 4),
                                     1 + static_cast<int64_t>(seed % 7),
                                     16 + static_cast<int64_t>(seed), 21, dtype, seed * 10);
    const auto want = testing::experts_definition(p.experts, p.x, p.weights, p.ids, 2.5);
    for (SmallRoute small_route : {SmallRoute::kAlways, SmallRoute::kNever}) {
      const FusedMoEExpertsFwdOp op({.routed_scaling_factor = 2.5, .small_route = small_route});
      EXPECT_LE(relative_error(elements(run(op, p)), want), tolerance(dtype))
          << "T " << num_tokens << (small_route == SmallRoute::kAlways ? " indexed" : " permuted");
    }
  }
}

TEST(FusedMoEExperts, EveryActivationWithBiasesAgreesWithTheDefinition) {
  const std::pair<testing::Act, GatedActivation> activations[] = {
      {testing::Act::kSilu, GatedActivation::silu_and_mul},
      {testing::Act::kGeluErf, GatedActivation::gelu_and_mul},
      {testing::Act::kGeluTanh, GatedActivation::gelu_tanh_and_mul},
      {testing::Act::kSwigluOai, GatedActivation::swigluoai()}};
  for (const auto& [act, activation] : activations) {
    Problem p = random_problem(33, 2, 5, 24, 17, DType::kF16, 3);
    p.experts.act = act;
    p.experts.b_gate_up = random_tensor({5, 34}, DType::kF16, 50);
    p.experts.b_down = random_tensor({5, 24}, DType::kF16, 51);
    const auto want = testing::experts_definition(p.experts, p.x, p.weights, p.ids, 1);
    for (SmallRoute small_route : {SmallRoute::kAlways, SmallRoute::kNever}) {
      const FusedMoEExpertsFwdOp op({.activation = activation, .small_route = small_route});
      EXPECT_LE(relative_error(elements(run(op, p)), want), tolerance(DType::kF16))
          << to_string(activation.to_value());
    }
  }
}

std::vector<std::string> stages_that_ran(const Op& op) {
  std::vector<std::string> ran;
  const RecordPtr record = op.last_call();
  for (const std::string& stage : record->stage_names()) {
    for (size_t i = 0; i < record->stages(stage).size(); ++i) ran.push_back(stage);
  }
  return ran;
}

TEST(FusedMoEExperts, TheRecordSaysWhichPathServed) {
  const FusedMoEExpertsFwdOp op;
  run(op, random_problem(4, 2, 3, 16, 8, DType::kBF16, 1));
  EXPECT_THAT(stages_that_ran(op), ElementsAre("indexed_small_route"));
  const FusedMoEExpertsFwdOp permuted({.small_route = SmallRoute::kNever});
  run(permuted, random_problem(4, 2, 3, 16, 8, DType::kBF16, 2));
  EXPECT_THAT(stages_that_ran(permuted), ElementsAre("pre_permute", "expert_mlp", "post_permute"));
}

TEST(FusedMoEExperts, Contract_E2_OneInstanceServesAnyExpertCount) {
  const FusedMoEExpertsFwdOp op({.small_route = SmallRoute::kNever});
  for (int64_t num_experts : {4, 9, 4, 1}) {
    const Problem p = random_problem(9, 2, num_experts, 16, 8, DType::kBF16, 7);
    EXPECT_LE(relative_error(elements(run(op, p)),
                             testing::experts_definition(p.experts, p.x, p.weights, p.ids, 1)),
              tolerance(DType::kBF16));
  }
  std::vector<std::string> pre_permutes;
  for (const HeldDelegate& held : op.held_delegates()) {
    if (held.stage == "pre_permute") pre_permutes.push_back(to_string(held.identity));
  }
  EXPECT_THAT(pre_permutes, ElementsAre("4", "9", "1"));
}

TEST(FusedMoEExperts, BatchInvarianceKeepsATokensBitsAtEveryBatchSize) {
  const Problem p = random_problem(300, 2, 5, 48, 40, DType::kBF16, 8);
  for (SmallRoute small_route : {SmallRoute::kAuto, SmallRoute::kAlways, SmallRoute::kNever}) {
    const FusedMoEExpertsFwdOp op({.small_route = small_route, .batch_invariant = true});
    const Tensor all = run(op, p);
    for (int64_t count : {1, 2, 3, 15, 16, 17, 33, 64, 129, 255, 256, 257, 299}) {
      const int64_t begin = 300 - count;
      const Problem part{p.experts, p.x.narrow(0, begin, count), p.weights.narrow(0, begin, count),
                         p.ids.narrow(0, begin, count)};
      EXPECT_TRUE(bit_equal(run(op, part), all.narrow(0, begin, count))) << count;
    }
  }
}

TEST(FusedMoEExperts, ACallersOutputIsFilledOnBothPaths) {
  const Problem p = random_problem(9, 2, 3, 16, 8, DType::kBF16, 9);
  for (SmallRoute small_route : {SmallRoute::kAlways, SmallRoute::kNever}) {
    const FusedMoEExpertsFwdOp op({.small_route = small_route});
    const Tensor output = testing::poisoned({16, 9}, DType::kBF16).transpose(0, 1);
    EXPECT_TRUE(run(op, p, output).is_same_view(output));
    EXPECT_TRUE(bit_equal(output, run(op, p)));
  }
}

TEST(FusedMoEExperts, AWorkspaceOfTheAskedSizeServesBothPathsAndASmallerOneIsRefused) {
  const Problem p = random_problem(300, 2, 5, 40, 24, DType::kBF16, 12);
  const int64_t bytes = FusedMoEExpertsFwdOp::workspace_bytes(300, 2, 5, 40, 24);
  for (SmallRoute small_route : {SmallRoute::kAlways, SmallRoute::kNever}) {
    const FusedMoEExpertsFwdOp op({.small_route = small_route});
    const Tensor want = run(op, p);
    const auto with = [&](const Tensor& workspace) {
      return op(p.x, p.weights, p.ids, p.experts.w_gate_up, p.experts.w_down,
                {.workspace = workspace});
    };
    const Tensor workspace = Tensor::empty({bytes}, DType::kU8);
    std::memset(workspace.data(), 0xff, static_cast<size_t>(bytes));
    const Tensor got = with(workspace);
    EXPECT_TRUE(bit_equal(got, want));
    EXPECT_FALSE(got.overlaps(workspace));
    EXPECT_TRUE(bit_equal(with(workspace), want));
    EXPECT_THAT(error_of([&] { with(workspace.narrow(0, 0, bytes - 1)); }),
                AllOf(HasSubstr("workspace"), HasSubstr(std::to_string(bytes))));
    EXPECT_THAT(error_of([&] { with(Tensor::empty({bytes}, DType::kF32)); }), HasSubstr("uint8"));
  }
}

TEST(FusedMoEExperts, WithoutAWorkspaceABlockIsKeptFromCallToCall) {
  const Problem p = random_problem(1000, 2, 5, 40, 24, DType::kBF16, 13);
  const FusedMoEExpertsFwdOp op;
  run(op, p);
  const int64_t kept = kept_workspace_bytes();
  EXPECT_GE(kept, FusedMoEExpertsFwdOp::workspace_bytes(1000, 2, 5, 40, 24));
  for (int i = 0; i < 5; ++i) run(op, p);
  EXPECT_EQ(kept_workspace_bytes(), kept);
}

/// Counts what is in use at once of what it hands out; a call allocates on its own thread alone.
class PeakAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes, Stream) override {
    used_ += static_cast<int64_t>(bytes);
    peak_ = std::max(peak_, used_);
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void deallocate(void* data, size_t bytes, Stream) noexcept override {
    used_ -= static_cast<int64_t>(bytes);
    std::free(data);
  }
  int64_t peak() const { return peak_; }

 private:
  int64_t used_ = 0, peak_ = 0;
};

struct Sizes {
  int64_t num_tokens, top_k, num_experts, hidden, inter;
};

Problem zero_weights(const Sizes& m) {
  const auto zeros = [](const Shape& shape) {
    const Tensor tensor = Tensor::empty(shape, DType::kBF16);
    std::memset(tensor.data(), 0, static_cast<size_t>(2 * tensor.num_elements()));
    return tensor;
  };
  Problem p = random_problem(m.num_tokens, m.top_k, m.num_experts, 1, 1, DType::kBF16, 15);
  p.x = zeros({m.num_tokens, m.hidden});
  p.experts.w_gate_up = zeros({m.num_experts, 2 * m.inter, m.hidden});
  p.experts.w_down = zeros({m.num_experts, m.hidden, m.inter});
  return p;
}

int64_t peak_bytes_of_a_call(const FusedMoEExpertsFwdOp& op, const Problem& p) {
  static auto& allocators = *new std::deque<PeakAllocator>;  // ops' records outlive a call
  PeakAllocator& allocator = allocators.emplace_back();
  release_kept_workspace();
  Allocator* outer = set_allocator(DeviceType::kCPU, &allocator);
  run(op, p);
  release_kept_workspace();
  set_allocator(DeviceType::kCPU, outer);
  return allocator.peak();
}

/// With two threads; each more may take scratch of its own.
TEST(FusedMoEExperts, ACallsMemoryIsBoundedByItsTensorsAndOneIntermediate) {
  const int64_t more_threads_bytes = int64_t{2 << 20} * std::max(0, cpu::num_threads() - 2);
  const auto expect_bounded = [&](const FusedMoEExpertsFwdOp& op, const Sizes& m) {
    const Problem p = zero_weights(m);
    const int64_t in_bytes = m.num_tokens * (2 * m.hidden + 8 * m.top_k);
    const int64_t out_bytes = m.num_tokens * 2 * m.hidden;
    const int64_t intermediate_bytes = 2 * m.num_tokens * m.top_k * std::max(m.hidden, m.inter);
    const int64_t peak_bytes = in_bytes + peak_bytes_of_a_call(op, p) - more_threads_bytes;
    EXPECT_LE(10 * peak_bytes, 12 * (in_bytes + out_bytes + intermediate_bytes))
        << "H " << m.hidden << " F " << m.inter;
  };
  const Sizes qwen3_ratios{1024, 8, 8, 1024, 384};
  expect_bounded(FusedMoEExpertsFwdOp({.batch_invariant = true}), qwen3_ratios);
  const FusedMoEExpertsFwdOp op;
  expect_bounded(op, qwen3_ratios);
  expect_bounded(op, {4096, 2, 4, 1024, 3584});  // Mixtral's ratios
  expect_bounded(op, {1024, 8, 8, 1792, 512});   // DeepSeek-V3's
  expect_bounded(op, {2048, 4, 2, 2880, 2880});  // GPT-OSS's
}

TEST(FusedMoEExperts, PackedExpertsServeWhileTheyLive) {
  const Problem p = random_problem(33, 2, 5, 40, 24, DType::kBF16, 14);
  const auto want = testing::experts_definition(p.experts, p.x, p.weights, p.ids, 1);
  for (SmallRoute small_route : {SmallRoute::kAlways, SmallRoute::kNever}) {
    const FusedMoEExpertsFwdOp op({.small_route = small_route, .batch_invariant = true});
    const Tensor unpacked = run(op, p);
    {
      const PackedExperts packed(p.experts.w_gate_up, p.experts.w_down);
      EXPECT_GE(packed.bytes(), 5 * 3 * 40 * 24 * 2);
      EXPECT_EQ(PackedExperts::process_bytes(), packed.bytes());
      // What the packed copy holds is what is read, not the tensor.
      std::memset(p.experts.w_down.data(), 0, 16);
      EXPECT_TRUE(bit_equal(run(op, p), unpacked));
      EXPECT_LE(relative_error(elements(run(op, p)), want), tolerance(DType::kBF16));
      copy_elements(random_problem(33, 2, 5, 40, 24, DType::kBF16, 14).experts.w_down,
                    p.experts.w_down);
    }
    EXPECT_EQ(PackedExperts::process_bytes(), 0);
    EXPECT_TRUE(bit_equal(run(op, p), unpacked));
  }
}

TEST(FusedMoEExperts, PackedExpertsServeWithoutTheWeightsThemselves) {
  Problem p = random_problem(33, 2, 5, 40, 24, DType::kBF16, 15);
  for (SmallRoute small_route : {SmallRoute::kAlways, SmallRoute::kNever}) {
    const FusedMoEExpertsFwdOp op({.small_route = small_route, .batch_invariant = true});
    const Tensor want = run(op, p);
    PackedExperts packed(p.experts.w_gate_up, p.experts.w_down);
    const auto [w_gate_up, w_down] = packed.release_weights();
    EXPECT_TRUE(w_down.is_same_view(packed.release_weights().w_down));
    Problem released = p;
    released.experts.w_gate_up = w_gate_up;
    released.experts.w_down = w_down;
    EXPECT_TRUE(bit_equal(run(op, released), want));
    // A kernel that reads the tensors gives what nobody takes for a result.
    const FusedMoEExpertsFwdOp reference({.small_route = small_route},
                                         {.implementation = "reference"});
    for (const double y : elements(run(reference, released))) EXPECT_TRUE(std::isnan(y));
    EXPECT_TRUE(bit_equal(run(op, p), want)) << "the weights are packed as they are used again";
  }
}

TEST(FusedMoEExperts, Contract_F2_ATraceShowsOnlyTheLeaves) {
  const Problem p = random_problem(600, 2, 3, 16, 8, DType::kBF16, 10);
  const FusedMoEExpertsFwdOp op({.small_route = SmallRoute::kNever});
  const Tensor inputs[] = {p.x,      p.weights, p.ids, p.experts.w_gate_up, p.experts.w_down,
                           Tensor(), Tensor()};
  const Graph graph = trace(op, {inputs, {}});
  std::vector<std::string> names;
  for (const GraphNode& node : graph.nodes()) names.push_back(node.name);
  EXPECT_THAT(names, ElementsAre("tileops::moe_pre_permute_fwd", "tileops::moe_grouped_gemm_fwd",
                                 "tileops::moe_grouped_gemm_fwd", "tileops::moe_post_permute_fwd"));
  EXPECT_TRUE(bit_equal(graph.run({inputs, {}})[0], run(op, p)));
}

TEST(FusedMoEExperts, ACallPricesTheExpertsThatItsRoutingReads) {
  Problem p = random_problem(4, 1, 8, 16, 8, DType::kBF16, 11);
  const FusedMoEExpertsFwdOp op;
  p.ids = int_tensor({4, 1}, {5, 5, 5, 5});
  run(op, p);
  const double one = op.eval_roofline().bytes;
  p.ids = int_tensor({4, 1}, {5, 4, 5, -1});
  run(op, p);
  EXPECT_EQ(op.eval_roofline().bytes - one, 3.0 * 16 * 8 * 2);
  EXPECT_EQ(op.eval_roofline().flops, 3.0 * (6 * 16 * 8 + 2 * 16));
}

}  // namespace
}  // namespace tileops
