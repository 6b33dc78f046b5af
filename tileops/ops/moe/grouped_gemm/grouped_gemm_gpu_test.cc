// SPDX-License-Identifier: Apache-2.0
// The grouped GEMM and the expert MLP on a Hopper GPU, beside the CPU's; skips where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tests/support/testing.h"
#include "tileops/core/error_testing.h"
#include "tileops/core/freeze.h"
#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_gpu_testing.h"

namespace tileops {
namespace {

using testing::bit_equal;
using ::testing::HasSubstr;
using testing::int_tensor;
using testing::kCuda0;
using testing::random_tensor;
using testing::tolerance;

const auto kTight = MGroupedLayout::contiguous();
const auto kSilu = GatedActivation::silu_and_mul;
const auto kGelu = GatedActivation::gelu_and_mul;
const auto kGeluTanh = GatedActivation::gelu_tanh_and_mul;
const auto kSwiglu = GatedActivation::swigluoai();
const auto kPerRow = MGroupedLayout::tight_per_row();

struct GroupedGemmGpu : testing::GpuTest {};
struct GroupedGemmOnGpu : testing::GpuTestOf<testing::GemmCase> {};

/// On the CPU; the rows after them are no expert's.
Tensor first_rows(const Tensor& tensor, int64_t num_rows) {
  return cuda::to_host(tensor).narrow(0, 0, num_rows);
}

/// An implementation and the tile that is forced on it; none: its own choice.
struct Choice {
  std::string implementation;
  Params tile;
};

TEST_P(GroupedGemmOnGpu, EveryImplementationAgreesWithTheCpu) {
  const testing::GemmCase& c = GetParam();
  const testing::GemmInputs cpu = testing::make_inputs(c, 1);
  const testing::GemmInputs gpu = cpu.to(kCuda0);
  const Tensor want = testing::cpu_result(c, cpu);
  std::vector<Choice> choices = {{"", {}}, {"sm90_strided", {}}};
  if (c.tma) {
    for (const Params& tile : testing::forced_tiles()) {
      choices.push_back({"sm90_weights_on_m", tile});
    }
  }
  for (const Choice& choice : choices) {
    SCOPED_TRACE(choice.implementation + " " + to_string(choice.tile));
    const OpOptions options{.implementation = choice.implementation, .kernel_config = choice.tile};
    const MoEGroupedGemmFwdOp op(c.layout, c.activation, c.out_dtype, options);
    const testing::MarginedOutput first(c), again(c);
    op(gpu.a, gpu.b, gpu.metadata, {.bias = gpu.bias, .out = first.out()});
    op(gpu.a, gpu.b, gpu.metadata, {.bias = gpu.bias, .out = again.out()});
    const Tensor got = first.host();
    EXPECT_LE(
        testing::relative_error(testing::valid_rows(c.layout, cpu.metadata, cpu.b.size(0), got),
                                testing::valid_rows(c.layout, cpu.metadata, cpu.b.size(0), want)),
        tolerance(c.out_dtype.value_or(c.dtype)));
    EXPECT_TRUE(bit_equal(first.host_backing(), again.host_backing())) << "from run to run";
    EXPECT_EQ(first.written_outside(cpu.metadata, cpu.b.size(0)), 0);
    const std::string by = op.last_call()->kernels()[0].entry->implementation;
    EXPECT_EQ(by, !choice.implementation.empty() ? choice.implementation
                  : c.tma                        ? "sm90_weights_on_m"
                                                 : "sm90_strided");
  }
}

using Case = testing::GemmCase;
const std::vector<int64_t> kMixed = {5, 0, 17, 128, 1, 0, 300, 64};

INSTANTIATE_TEST_SUITE_P(
    Layouts, GroupedGemmOnGpu,
    ::testing::Values(
        Case{"tight", kTight, {}, kMixed, 256, 256},
        Case{"aligned", MGroupedLayout::aligned_physical_psum(64), {}, kMixed, 256, 256},
        Case{"per_row", kPerRow, {}, kMixed, 256, 256},
        Case{"aligned_per_row", MGroupedLayout::aligned_per_row(64), kSilu, kMixed, 256, 256},
        Case{"masked", MGroupedLayout::masked(300), {}, kMixed, 256, 256},
        Case{"masked_128", MGroupedLayout::masked(128), kSilu, {128, 0, 3, 128}, 384, 320},
        Case{"masked_one_row", MGroupedLayout::masked(1), {}, {1, 0, 1}, 64, 64},
        Case{"no_valid_rows", MGroupedLayout::masked(4), {}, {0, 0}, 64, 64},
        Case{"one_row", kTight, {}, {1}, 8, 8},
        Case{"all_rows_on_one_expert", kTight, {}, {0, 0, 1111, 0}, 400, 200},
        Case{"many_experts", kTight, {}, std::vector<int64_t>(2048, 1), 64, 64},
        Case{"split_along_k", kTight, {}, {3, 9}, 256, 8192},
        Case{"split_wide", kTight, kSilu, {3, 200, 9}, 384, 4096},
        Case{"tails", kTight, {}, {7, 31, 129, 0, 257}, 712, 456}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Types, GroupedGemmOnGpu,
    ::testing::Values(
        Case{"f16_bias", kTight, {}, kMixed, 256, 128, DType::kF16, true},
        Case{"f32_out", kTight, {}, kMixed, 256, 128, DType::kBF16, false, DType::kF32},
        Case{"f16_silu_bias_f32", kTight, kSilu, kMixed, 256, 128, DType::kF16, true, DType::kF32},
        Case{"gelu_bias", kTight, kGelu, kMixed, 256, 128, DType::kBF16, true},
        Case{"gelu_tanh_f16", kTight, kGeluTanh, kMixed, 256, 128, DType::kF16},
        Case{"swigluoai_bias", kTight, kSwiglu, kMixed, 256, 128, DType::kBF16, true},
        Case{"swigluoai_other_limit",
             MGroupedLayout::masked(70),
             GatedActivation::swigluoai(1.0, 0.5),
             {70, 1, 0},
             192,
             136}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    OddSizes, GroupedGemmOnGpu,
    ::testing::Values(
        Case{"odd_k", kTight, {}, {5, 0, 33}, 64, 63, DType::kBF16, false, {}, false},
        Case{"odd_n", kTight, {}, {5, 0, 33}, 65, 64, DType::kBF16, true, {}, false},
        Case{"odd_features", kTight, kSilu, {5, 0, 133}, 66, 31, DType::kF16, true, {}, false},
        Case{"tiny", kTight, {}, {1}, 3, 5, DType::kBF16, false, {}, false},
        Case{"k_is_zero", kTight, {}, {3, 2}, 16, 0, DType::kBF16, true, {}, false},
        Case{"odd_masked",
             MGroupedLayout::masked(9),
             kSwiglu,
             {9, 0, 3},
             34,
             257,
             DType::kBF16,
             true,
             DType::kF32,
             false}),
    [](const auto& info) { return info.param.name; });

TEST_F(GroupedGemmGpu, TileParitiesOfRandomRowCounts) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 engine(seed);
    Case c{"random", kTight, seed % 2 == 0 ? GatedActivation() : kSilu, {}, 0, 0};
    for (uint64_t e = 0; e < 1 + seed * 3; ++e) {
      c.counts.push_back(std::array<int64_t, 7>{0, 1, 8, 31, 129, 193, 257}[engine() % 7]);
    }
    c.n = 16 * static_cast<int64_t>(1 + engine() % 40);
    c.k = 8 * static_cast<int64_t>(1 + engine() % 60);
    const testing::GemmInputs cpu = testing::make_inputs(c, seed);
    const testing::GemmInputs gpu = cpu.to(kCuda0);
    const std::vector<double> want =
        testing::valid_rows(kTight, cpu.metadata, cpu.b.size(0), testing::cpu_result(c, cpu));
    for (const Params& tile : testing::forced_tiles()) {
      const MoEGroupedGemmFwdOp op(c.layout, c.activation, {}, {.kernel_config = tile});
      const Tensor got = cuda::to_host(op(gpu.a, gpu.b, gpu.metadata));
      EXPECT_LE(testing::relative_error(
                    testing::valid_rows(kTight, cpu.metadata, cpu.b.size(0), got), want),
                tolerance(DType::kBF16))
          << "seed " << seed << ", N " << c.n << ", K " << c.k << ", " << to_string(tile);
    }
  }
}

/// Tiles cut along K leave pieces of a few k_tiles, and the piece after next is written while a
/// warpgroup may still be in the epilogue of the one before.
TEST_F(GroupedGemmGpu, PiecesAreReadBeforeTheNextAreWritten) {
  const Tensor a = cuda::to_device(random_tensor({1400, 4096}, DType::kBF16, 1), kCuda0);
  const Tensor b = cuda::to_device(random_tensor({1, 4096, 4096}, DType::kBF16, 2, 0.02), kCuda0);
  for (int64_t rows = 600; rows < 1400; rows += 53) {
    const Tensor metadata = cuda::to_device(int_tensor({1}, {rows}), kCuda0);
    Tensor want;
    for (const Params& tile : testing::forced_tiles()) {
      const MoEGroupedGemmFwdOp op(kTight, {}, {}, {.kernel_config = tile});
      const Tensor first = cuda::to_host(op(a.narrow(0, 0, rows), b, metadata));
      if (!want.defined()) want = first;
      EXPECT_LE(testing::relative_error(first, want), tolerance(DType::kBF16)) << to_string(tile);
      Tensor again;
      for (int i = 0; i < 200; ++i) again = op(a.narrow(0, 0, rows), b, metadata);
      EXPECT_TRUE(bit_equal(cuda::to_host(again), first)) << rows << " rows, " << to_string(tile);
    }
  }
}

TEST_F(GroupedGemmGpu, AnyStridesAreHonoured) {
  const Tensor a = random_tensor({24, 40}, DType::kBF16, 1).transpose(0, 1).narrow(0, 1, 38);
  const Tensor b = random_tensor({3, 24, 50}, DType::kBF16, 2, 0.2).transpose(1, 2);
  const Tensor bias = random_tensor({50, 3}, DType::kBF16, 3).transpose(0, 1);
  const Tensor metadata = int_tensor({3, 2}, {5, 0, 5, 0, 38, 0}).select(1, 0);
  const auto run = [&](const Tensor& out) {
    const Device device = out.device();
    const MoEGroupedGemmFwdOp op(kTight);
    op(cuda::to_device(a, device), cuda::to_device(b, device), cuda::to_device(metadata, device),
       {.bias = cuda::to_device(bias, device), .out = out});
    return op.last_call()->kernels()[0].entry->implementation;
  };
  const Tensor want = testing::poisoned({50, 38}, DType::kBF16).transpose(0, 1);
  const Tensor out = cuda::to_device(testing::poisoned({50, 38}, DType::kBF16), kCuda0);
  run(want);
  EXPECT_EQ(run(out.transpose(0, 1)), "sm90_strided");
  EXPECT_LE(testing::relative_error(cuda::to_host(out).transpose(0, 1), want),
            tolerance(DType::kBF16));
}

TEST_F(GroupedGemmGpu, StridedMetadataIsReadByTheTmaKernelToo) {
  const Tensor a = random_tensor({38, 64}, DType::kBF16, 1),
               b = random_tensor({3, 64, 64}, DType::kBF16, 2, 0.1);
  const Tensor psum = int_tensor({3, 2}, {5, 9, 5, 9, 38, 9}).select(1, 0);
  std::vector<int64_t> pairs;
  for (int64_t row = 0; row < 38; ++row)
    pairs.insert(pairs.end(), {row < 5 ? 0 : row == 20 ? -1 : 2, 7});
  const Tensor ids = int_tensor({38, 2}, pairs).select(1, 0);
  const Tensor want = MoEGroupedGemmFwdOp(kTight, {}, DType::kF32)(a, b, psum);
  for (const auto& [layout, metadata] : {std::pair{kTight, psum}, std::pair{kPerRow, ids}}) {
    const MoEGroupedGemmFwdOp op(layout, {}, {}, {.implementation = "sm90_weights_on_m"});
    const Tensor got = op(cuda::to_device(a, kCuda0), cuda::to_device(b, kCuda0),
                          cuda::to_device(metadata, kCuda0));
    EXPECT_LE(testing::relative_error(testing::valid_rows(layout, metadata, 3, cuda::to_host(got)),
                                      testing::valid_rows(layout, metadata, 3, want)),
              tolerance(DType::kBF16));
  }
}

TEST_F(GroupedGemmGpu, SlabsWithGapsAndExpandedWeightsGoToTheGeneralKernel) {
  const auto layout = MGroupedLayout::masked(6);
  const Tensor a = random_tensor({2, 8, 64}, DType::kBF16, 1).narrow(1, 0, 6);
  const Tensor one = random_tensor({1, 64, 64}, DType::kBF16, 2, 0.1);
  const Tensor b = one.as_strided({2, 64, 64}, {0, 64, 1}, 0);
  const Tensor metadata = int_tensor({2}, {6, 2});
  const Tensor want = MoEGroupedGemmFwdOp(layout)(a, b, metadata);
  const Tensor gpu_a = cuda::to_device(a, kCuda0);
  const Tensor gpu_b = cuda::to_device(one, kCuda0).as_strided({2, 64, 64}, {0, 64, 1}, 0);
  const Tensor gpu_metadata = cuda::to_device(metadata, kCuda0);
  const MoEGroupedGemmFwdOp op(layout);
  const Tensor got = cuda::to_host(op(gpu_a, gpu_b, gpu_metadata));
  EXPECT_EQ(op.last_call()->kernels()[0].entry->implementation, "sm90_strided");
  EXPECT_LE(testing::relative_error(testing::valid_rows(layout, metadata, 2, got),
                                    testing::valid_rows(layout, metadata, 2, want)),
            tolerance(DType::kBF16));
  const MoEGroupedGemmFwdOp forced(layout, {}, {}, {.implementation = "sm90_weights_on_m"});
  EXPECT_THAT(error_of([&] { forced(gpu_a, gpu_b, gpu_metadata); }),
              HasSubstr("found slabs with gaps"));
  EXPECT_THAT(
      error_of([&] { forced(cuda::to_device(a.contiguous(), kCuda0), gpu_b, gpu_metadata); }),
      HasSubstr("found an expanded operand"));
}

TEST_F(GroupedGemmGpu, ErrorsSayWhatIsNeededAndWhatWasFound) {
  const Tensor a =
      cuda::to_device(random_tensor({4, 72}, DType::kBF16, 1), kCuda0).narrow(1, 1, 64);
  const Tensor b = cuda::to_device(random_tensor({2, 64, 64}, DType::kBF16, 2, 0.1), kCuda0);
  const Tensor metadata = cuda::to_device(int_tensor({2}, {1, 4}), kCuda0);
  const MoEGroupedGemmFwdOp forced(kTight, {}, {}, {.implementation = "sm90_weights_on_m"});
  EXPECT_THAT(error_of([&] { forced(a, b, metadata); }),
              HasSubstr("needs the address and strides of a aligned to 16 bytes, found 2"));
  const MoEGroupedGemmFwdOp op(kTight);
  op(a, b, metadata);
  EXPECT_EQ(op.last_call()->kernels()[0].entry->implementation, "sm90_strided");
  EXPECT_THAT(error_of([&] { op(cuda::to_host(a), b, metadata); }), HasSubstr("cuda:0"));
  const MoEGroupedGemmFwdOp tuned(kTight, {}, {}, {.kernel_config = {{"tile_rows", int64_t{96}}}});
  EXPECT_THAT(
      error_of([&] { tuned(cuda::to_device(cuda::to_host(a).contiguous(), kCuda0), b, metadata); }),
      HasSubstr("or tile_features=128, tile_rows=128, stages=6, ctas=2, ping_pong=1 or "
                "tile_features=128, tile_rows=176, stages=5, ctas=2, ping_pong=1 here, "
                "got tile_rows=96"));
}

TEST_F(GroupedGemmGpu, ANewRowCountCompilesNothing) {
  const MoEGroupedGemmFwdOp op(kTight);
  const Tensor b = cuda::to_device(random_tensor({2, 64, 64}, DType::kBF16, 2, 0.1), kCuda0);
  const auto call = [&](int64_t rows) {
    op(cuda::to_device(random_tensor({rows, 64}, DType::kBF16, 1), kCuda0), b,
       cuda::to_device(int_tensor({2}, {1, rows}), kCuda0));
  };
  call(2);
  call(1000);
  freeze();
  for (const int64_t rows : {1, 3, 17, 190, 2000}) call(rows);
  thaw();
}

TEST_F(GroupedGemmGpu, BatchInvariantBitsAreThoseOfARowAlone) {
  const Tensor a = cuda::to_device(random_tensor({333, 2048}, DType::kBF16, 1), kCuda0);
  const Tensor b = cuda::to_device(random_tensor({3, 256, 2048}, DType::kBF16, 2, 0.02), kCuda0);
  const MoEGroupedGemmFwdOp op(kTight, kSilu, {}, true);
  const Tensor all =
      cuda::to_host(op(a, b, cuda::to_device(int_tensor({3}, {100, 300, 333}), kCuda0)));
  for (const int64_t row : {0, 99, 100, 250, 332}) {
    const int64_t e = row < 100 ? 0 : row < 300 ? 1 : 2;
    const Tensor ends = int_tensor({3}, {e == 0, e <= 1, 1});
    const Tensor alone = cuda::to_host(op(a.narrow(0, row, 1), b, cuda::to_device(ends, kCuda0)));
    EXPECT_TRUE(bit_equal(alone, all.narrow(0, row, 1))) << "row " << row;
  }
}

TEST_F(GroupedGemmGpu, AGraphReplaysOnChangedContents) {
  const Case c{"graph", kTight, kSilu, {70, 0, 300, 30}, 512, 1024};
  Case fewer = c;
  fewer.counts = {1, 2, 0, 5};
  const MoEGroupedGemmFwdOp op(kTight, kSilu), per_row(kPerRow, kSilu);
  const testing::GemmInputs large = testing::make_inputs(c, 1);
  testing::GemmInputs small = testing::make_inputs(fewer, 2);
  const testing::GemmInputs gpu = large.to(kCuda0);
  const std::vector<int64_t> one_expert(static_cast<size_t>(large.a.size(0)), 2);
  const Tensor ids = cuda::to_device(int_tensor({large.a.size(0)}, one_expert), kCuda0);
  op(gpu.a, gpu.b, gpu.metadata);
  per_row(gpu.a, gpu.b, ids);
  const cuda::OwnedStream stream(kCuda0), other(kCuda0);
  Tensor out, out_ids, out_twin;
  const cuda::Graph graph = cuda::Graph::capture(stream, [&] {
    out = op(gpu.a, gpu.b, gpu.metadata);
    out_ids = per_row(gpu.a, gpu.b, ids);
  });
  const cuda::Graph twin =
      cuda::Graph::capture(stream, [&] { out_twin = op(gpu.a, gpu.b, gpu.metadata); });
  for (const testing::GemmInputs& inputs : {large, small, large}) {
    const int64_t rows = inputs.a.size(0);
    cuda::copy_to_device(gpu.a.data(), inputs.a.data(), static_cast<size_t>(rows * 1024 * 2),
                         kCuda0);
    cuda::copy_to_device(gpu.metadata.data(), inputs.metadata.data(), 16, kCuda0);
    for (int i = 0; i < 20; ++i) {
      graph.replay(stream);
      twin.replay(other);
    }
    cuda::synchronize(stream);
    cuda::synchronize(other);
    const auto num_valid = static_cast<int64_t>(inputs.metadata.at({3}));
    const Tensor want = first_rows(op(gpu.a, gpu.b, gpu.metadata), num_valid);
    EXPECT_TRUE(bit_equal(first_rows(out, num_valid), want)) << num_valid << " rows";
    EXPECT_TRUE(bit_equal(first_rows(out_twin, num_valid), want)) << num_valid << " rows";
    EXPECT_TRUE(bit_equal(first_rows(out_ids, num_valid),
                          first_rows(per_row(gpu.a, gpu.b, ids), num_valid)));
  }
}

TEST_F(GroupedGemmGpu, EightThreadsOnEightStreamsShareAnOp) {
  const MoEGroupedGemmFwdOp op(kTight, kSilu);
  std::vector<testing::GemmInputs> inputs;
  std::vector<Tensor> want;
  std::vector<int64_t> num_valid;
  for (uint64_t i = 0; i < 8; ++i) {
    const auto n = static_cast<int64_t>(i);
    inputs.push_back(
        testing::make_inputs({"thread", kTight, kSilu, {40 * n, 3, 100, 17 * n}, 512, 2048}, i)
            .to(kCuda0));
    num_valid.push_back(57 * n + 103);
    want.push_back(first_rows(op(inputs[i].a, inputs[i].b, inputs[i].metadata), num_valid[i]));
  }
  std::vector<int> wrong(8);
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        const cuda::OwnedStream stream(kCuda0);
        {
          const StreamGuard guard(stream);
          for (int turn = 0; turn < 30; ++turn) {
            const Tensor got = op(inputs[i].a, inputs[i].b, inputs[i].metadata);
            if (!bit_equal(first_rows(got, num_valid[i]), want[i])) ++wrong[i];
          }
        }
      });
    }
  }
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

TEST_F(GroupedGemmGpu, ExpertMlpAgreesWithTheCpu) {
  for (const bool masked : {false, true}) {
    const MGroupedLayout layout = masked ? MGroupedLayout::masked(64) : kTight;
    const GatedActivation activation = masked ? kSwiglu : kSilu;
    const testing::GemmInputs x = testing::make_inputs(
        {"mlp", layout, activation, {64, 0, 33, 5}, 512, 384, DType::kBF16, true}, 3);
    const Tensor down = random_tensor({4, 384, 256}, DType::kBF16, 4, 1 / 16.0);
    const Tensor down_bias = random_tensor({4, 384}, DType::kBF16, 5);
    const auto run = [&](const std::string& implementation, Device device) {
      const MoEExpertMLPFwdOp op(layout, activation, false, {.implementation = implementation});
      const testing::GemmInputs in = x.to(device);
      const Tensor y = op(in.a, in.b, cuda::to_device(down, device), in.metadata,
                          {.b_gate_up = in.bias, .b_down = cuda::to_device(down_bias, device)});
      return testing::valid_rows(layout, x.metadata, 4, cuda::to_host(y));
    };
    EXPECT_LE(testing::relative_error(run("", kCuda0), run("", kCpuDevice)),
              2 * tolerance(DType::kBF16));
  }
}

TEST_F(GroupedGemmGpu, NoRowsAndNoCallsAreServed) {
  const MoEGroupedGemmFwdOp op(kTight, kSilu);
  const Tensor a = Tensor::empty({0, 64}, DType::kBF16, kCuda0);
  const Tensor b = cuda::to_device(random_tensor({2, 64, 64}, DType::kBF16, 2), kCuda0);
  EXPECT_EQ(op(a, b, cuda::to_device(int_tensor({2}, {0, 0}), kCuda0)).shape(), (Shape{0, 32}));
}

}  // namespace
}  // namespace tileops
