// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/grouped_gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tileops/core/error.h"
#include "tileops/cpu/gemm_fixture.h"

namespace tileops::cpu {
namespace {

using ::testing::HasSubstr;

/// Every level and inner loop that this machine runs on a dtype.
std::vector<GemmOptions> all_options(DType dtype) {
  std::vector<GemmOptions> all;
  for (const IsaLevel level : available_isa_levels()) {
    for (const InnerLoop loop : {InnerLoop::kFma, InnerLoop::kBf16Dot, InnerLoop::kAmx}) {
      const bool bf16_only = loop != InnerLoop::kFma;
      if (bf16_only && dtype != DType::kBF16) continue;
      if (loop == InnerLoop::kFma && level > IsaLevel::kAvx512) continue;
      if (loop == InnerLoop::kBf16Dot && level != IsaLevel::kAvx512Bf16) continue;
      if (loop == InnerLoop::kAmx && level != IsaLevel::kAmx) continue;
      all.push_back({.inner_loop = loop, .isa = level});
    }
  }
  return all;
}

double tolerance(DType dtype) {
  return dtype == DType::kF32 ? 2e-6 : dtype == DType::kBF16 ? 5e-3 : 1e-3;
}

/// All implementations, packed and not, twice each, against float64.
void expect_all_close(Fixture& f) {
  f.compute_reference();
  const PackedWeights packed(f.problem.b, gate_layout(f.problem.activation.kind));
  for (GemmOptions options : all_options(f.problem.b.dtype)) {
    for (const bool use_packed : {false, true}) {
      for (const bool invariant : {false, true}) {
        if (use_packed && invariant) continue;
        options.batch_invariant = invariant;
        f.problem.packed_b = use_packed ? &packed : nullptr;
        SCOPED_TRACE(describe(f.problem, options));
        std::vector<std::byte> workspace(static_cast<size_t>(workspace_bytes(f.problem, options)),
                                         std::byte{0xff});
        f.reset_out();
        grouped_gemm(f.problem, options, workspace);
        EXPECT_LE(f.error(), tolerance(f.problem.out.dtype));
        const std::vector<std::byte> first = f.out.bytes;
        f.reset_out();
        grouped_gemm(f.problem, options);
        EXPECT_EQ(first, f.out.bytes) << "second run differs";
      }
    }
  }
}

const std::vector<int64_t> kRows = {0, 1, 2, 31, 0, 32, 33, 63, 64, 65, 127, 128, 129, 257, 0};
const std::vector<int64_t> kFewRows = {0, 1, 2, 3, 4, 5, 8, 9, 13, 17, 25, 37};

struct Case {
  const char* name;
  Sizes sizes;
  DType dtype = DType::kBF16, out = DType::kBF16;
  Activation kind = Activation::kNone;
  bool bias = false;
  Layout layout;
};

class GroupedGemmAgainstReference : public ::testing::TestWithParam<Case> {};

TEST_P(GroupedGemmAgainstReference, AllImplementations) {
  const Case& c = GetParam();
  Fixture f(c.sizes, c.dtype, c.out, c.kind, c.bias, c.layout);
  expect_all_close(f);
}

INSTANTIATE_TEST_SUITE_P(
    Cpu, GroupedGemmAgainstReference,
    ::testing::Values(
        Case{"row_counts", {33, 65, kRows}},
        Case{"row_counts_f16", {31, 64, kRows}, DType::kF16, DType::kF16},
        Case{"row_counts_f32", {32, 33, kRows}, DType::kF32, DType::kF32},
        Case{"one_by_one", {1, 1, kFewRows}, DType::kBF16, DType::kF32},
        Case{"tile_edges", {64, 128, kFewRows}, DType::kBF16, DType::kF32, Activation::kNone, true},
        Case{
            "odd_n_and_k", {129, 127, kFewRows}, DType::kF16, DType::kF32, Activation::kNone, true},
        Case{"several_k_chunks", {33, 4100, {1, 14, 100}}},
        Case{"several_panels", {700, 63, {3, 14}}},
        Case{"silu", {2 * 33, 63, kFewRows}, DType::kBF16, DType::kBF16, Activation::kSiluAndMul},
        Case{"silu_bias_f16",
             {2 * 16, 64, kFewRows},
             DType::kF16,
             DType::kF16,
             Activation::kSiluAndMul,
             true},
        Case{"gelu_f32",
             {2 * 17, 31, kFewRows},
             DType::kF32,
             DType::kF32,
             Activation::kGeluAndMul,
             true},
        Case{"gelu_tanh_f32",
             {2 * 47, 32, kFewRows},
             DType::kF32,
             DType::kF32,
             Activation::kGeluTanhAndMul},
        Case{"swigluoai_f32",
             {2 * 31, 65, kFewRows},
             DType::kF32,
             DType::kF32,
             Activation::kSwigluOai,
             true},
        Case{"swigluoai",
             {2 * 65, 96, kFewRows},
             DType::kBF16,
             DType::kF16,
             Activation::kSwigluOai,
             true},
        Case{"gathered_rows",
             {48, 64, kFewRows},
             DType::kBF16,
             DType::kF32,
             Activation::kNone,
             false,
             {.gather = true}},
        Case{"strided_columns",
             {34, 61, kFewRows},
             DType::kBF16,
             DType::kF32,
             Activation::kSiluAndMul,
             false,
             {.a_col = 2, .out_col = 3}},
        Case{"transposed_weights",
             {34, 61, kFewRows},
             DType::kBF16,
             DType::kBF16,
             Activation::kSwigluOai,
             true,
             {.gather = true, .transposed_b = true}},
        Case{"transposed_weights_in_k_chunks",
             {2 * 49, 700, {1, 14}},
             DType::kBF16,
             DType::kBF16,
             Activation::kSiluAndMul,
             false,
             {.transposed_b = true}},
        Case{"transposed_weights_f16",
             {2 * 33, 300, {3, 13}},
             DType::kF16,
             DType::kF16,
             Activation::kSwigluOai,
             false,
             {.transposed_b = true}},
        Case{"transposed_weights_f32",
             {34, 61, {5}},
             DType::kF32,
             DType::kF32,
             Activation::kNone,
             false,
             {.transposed_b = true}}),
    [](const auto& info) { return info.param.name; });

TEST(GroupedGemm, BatchInvariantRowsAreBitEqualAloneAndTogether) {
  const Sizes sizes{50, 150, {65}};
  Fixture all(sizes, DType::kBF16, DType::kF32, Activation::kNone, true);
  const PackedWeights packed(all.problem.b, GateLayout::kNone);
  for (GemmOptions options : all_options(DType::kBF16)) {
    options.batch_invariant = true;
    all.problem.packed_b = nullptr;
    all.problem.segments = all.segments;
    all.reset_out();
    grouped_gemm(all.problem, options);
    const std::vector<std::byte> together = all.out.bytes;
    for (const int64_t size : {1, 2, 5, 12, 13, 16, 31, 33, 64}) {
      std::vector<RowSegment> parts;
      for (int64_t row = 1; row <= 65; row += size) {
        parts.push_back({.row_begin = row, .num_rows = std::min<int64_t>(size, 66 - row)});
      }
      all.problem.segments = parts;
      all.problem.packed_b = &packed;
      all.reset_out();
      grouped_gemm(all.problem, options);
      EXPECT_EQ(together, all.out.bytes) << describe(all.problem, options) << " by " << size;
    }
  }
}

TEST(GroupedGemm, FmaIsBitEqualOnEveryLevelWithFusedMultiplyAdd) {
  if (active_isa() < IsaLevel::kAvx512) GTEST_SKIP() << "needs avx512";
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    Fixture f({70, 90, {1, 7, 40}}, dtype, DType::kF32, Activation::kNone, false);
    const GemmOptions avx2{
        .inner_loop = InnerLoop::kFma, .batch_invariant = true, .isa = IsaLevel::kAvx2};
    grouped_gemm(f.problem, avx2);
    const std::vector<std::byte> first = f.out.bytes;
    f.reset_out();
    GemmOptions avx512 = avx2;
    avx512.isa = IsaLevel::kAvx512;
    grouped_gemm(f.problem, avx512);
    EXPECT_EQ(first, f.out.bytes);
  }
}

TEST(GroupedGemm, ThreadCountDoesNotChangeBits) {
  Fixture f({200, 70, {40, 3, 90}}, DType::kBF16, DType::kBF16, Activation::kSiluAndMul, false);
  grouped_gemm(f.problem, {.num_threads = 1});
  const std::vector<std::byte> first = f.out.bytes;
  f.reset_out();
  grouped_gemm(f.problem);
  EXPECT_EQ(first, f.out.bytes);
}

TEST(GroupedGemm, SomeOutputsAtATimeAreTheBitsOfAllAtOnce) {
  for (const Activation kind : {Activation::kNone, Activation::kSiluAndMul}) {
    Fixture f({2 * 110, 70, {1, 40, 3}}, DType::kBF16, DType::kF32, kind, true);
    grouped_gemm(f.problem);
    const std::vector<std::byte> all = f.out.bytes;
    f.reset_out();
    for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 32}, {32, 0}, {32, 64}, {96, f.outputs - 96}}) {
      GroupedGemm part = f.problem;
      part.first_output = first;
      part.num_outputs = count;
      part.out.data = f.out.at(f.out_index(0, first));
      grouped_gemm(part);
    }
    EXPECT_EQ(all, f.out.bytes);
  }
}

TEST(GroupedGemm, ClosedFormGateAndUp) {
  // Gate weights give 1, up weights 3: silu(1)·3; a swapped pair would give silu(3)·1.
  for (const Activation kind : {Activation::kSiluAndMul, Activation::kSwigluOai}) {
    const std::vector<float> b = {1, 3};  // row 0 gate, row 1 up in both orders of F = 1
    const float a = 1, want = kind == Activation::kSiluAndMul ? 3 / (1 + std::exp(-1.0f))
                                                              : 4 / (1 + std::exp(-1.702f));
    float out = kNaN;
    const RowSegment segment{.num_rows = 1};
    const GroupedGemm problem{.segments = {&segment, 1},
                              .a = {.data = &a, .dtype = DType::kF32, .row_stride = 1},
                              .b = {.data = b.data(),
                                    .dtype = DType::kF32,
                                    .num_experts = 1,
                                    .n = 2,
                                    .k = 1,
                                    .expert_stride = 2,
                                    .n_stride = 1},
                              .activation = {.kind = kind},
                              .out = {.data = &out, .dtype = DType::kF32, .row_stride = 1}};
    grouped_gemm(problem);
    EXPECT_NEAR(out, want, 1e-6);
  }
}

TEST(GroupedGemm, EmptySizes) {
  Fixture none({16, 16, {}}, DType::kBF16, DType::kBF16, Activation::kNone, false);
  grouped_gemm(none.problem);
  Fixture no_outputs({0, 16, {3}}, DType::kBF16, DType::kBF16, Activation::kNone, false);
  grouped_gemm(no_outputs.problem);
  Fixture no_k({20, 0, {3, 0, 40}}, DType::kF32, DType::kF32, Activation::kNone, true);
  expect_all_close(no_k);  // the bias alone
}

TEST(GroupedGemm, OffsetsBeyond32Bits) {
  constexpr int64_t kStride = (int64_t{1} << 31) + 64;
  constexpr size_t kBytes = size_t{3} * kStride * 2;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space of 12 GiB";
  auto* rows = static_cast<uint16_t*>(memory);
  for (int64_t i = 0; i < 3; ++i) rows[i * kStride] = f32_to_bf16(static_cast<float>(i + 1));
  const std::vector<float> b = {2, 5};
  const RowSegment segment{.num_rows = 3};
  grouped_gemm({.segments = {&segment, 1},
                .a = {.data = rows, .row_stride = kStride},
                .b = {.data = b.data(),
                      .dtype = DType::kF32,
                      .num_experts = 1,
                      .n = 2,
                      .k = 1,
                      .n_stride = 1},
                .out = {.data = rows + 8, .row_stride = kStride}});
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(bf16_to_f32(rows[i * kStride + 8]), 2.0f * static_cast<float>(i + 1));
    EXPECT_EQ(bf16_to_f32(rows[i * kStride + 9]), 5.0f * static_cast<float>(i + 1));
  }
  munmap(memory, kBytes);
}

template <class Fn>
std::string error_text(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(GroupedGemm, ErrorsNameWhatWasExpectedAndGot) {
  Fixture f({32, 32, {4}}, DType::kF16, DType::kF16, Activation::kNone, false);
  const PackedWeights gated(f.problem.b, GateLayout::kStacked);
  GroupedGemm p = f.problem;
  p.packed_b = &gated;
  EXPECT_THAT(error_text([&] { grouped_gemm(p); }), HasSubstr("packed b must be [1, 32, 32] f16"));

  p = f.problem;
  const RowSegment outside{.row_begin = 1, .num_rows = 1, .expert = 1};
  p.segments = {&outside, 1};
  EXPECT_THAT(error_text([&] { grouped_gemm(p); }), HasSubstr("must be in [0, 1), got 1"));

  p = f.problem;
  p.b.n = 31;
  p.activation.kind = Activation::kSiluAndMul;
  EXPECT_THAT(error_text([&] { grouped_gemm(p); }), HasSubstr("N must be even"));

  p = f.problem;
  p.out.dtype = DType::kI32;
  EXPECT_THAT(error_text([&] { grouped_gemm(p); }), HasSubstr("got i32"));

  p = f.problem;
  p.first_output = 16;
  EXPECT_THAT(error_text([&] { grouped_gemm(p); }), HasSubstr("outputs [16, 32) must lie in"));
  p.first_output = 0;
  p.num_outputs = 33;
  EXPECT_THAT(error_text([&] { grouped_gemm(p); }), HasSubstr("outputs [0, 33) must lie in"));

  std::vector<std::byte> small(1);
  EXPECT_THAT(error_text([&] { grouped_gemm(f.problem, {}, small); }),
              HasSubstr("workspace must hold"));
  if (supported_isa() >= IsaLevel::kAvx512Bf16) {
    EXPECT_THAT(error_text([&] {
                  grouped_gemm(f.problem,
                               {.inner_loop = InnerLoop::kBf16Dot, .isa = IsaLevel::kAvx512Bf16});
                }),
                HasSubstr("needs bf16 a and b, got f16 and f16"));
  }
  EXPECT_THAT(error_text([&] {
                grouped_gemm(f.problem,
                             {.inner_loop = InnerLoop::kAmx, .isa = IsaLevel::kBaseline});
              }),
              HasSubstr("inner loop amx needs level amx, this one is baseline"));
}

}  // namespace
}  // namespace tileops::cpu
