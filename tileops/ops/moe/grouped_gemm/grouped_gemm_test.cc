// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/testing.h"
#include "tileops/core/error.h"
#include "tileops/ops/moe/grouped_gemm/valid_rows_testing.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/workload.h"

namespace tileops {
namespace {

using testing::bit_equal;
using testing::elements;
using ::testing::HasSubstr;
using testing::int_tensor;
using testing::poisoned;
using testing::random_tensor;
using testing::relative_error;
using testing::tolerance;
using testing::valid_rows;

/// The definition once more, from nothing but at(): independent of the reference kernel's strides.
std::vector<double> definition(const MGroupedLayout& layout, const GatedActivation& activation,
                               const Tensor& a, const Tensor& b, const Tensor& metadata,
                               const Tensor& bias) {
  const int64_t n_size = b.size(1), k_size = b.size(2);
  std::vector<double> values;
  const int64_t num_rows = layout.is_masked() ? a.size(0) * a.size(1) : a.size(0);
  for (const ExpertRows& rows : expert_rows(layout, metadata, b.size(0), num_rows)) {
    for (int64_t row = rows.row_begin; row < rows.row_begin + rows.num_rows; ++row) {
      std::vector<double> product;
      for (int64_t n = 0; n < n_size; ++n) {
        double sum = bias.defined() ? bias.at({rows.expert, n}) : 0.0;
        for (int64_t k = 0; k < k_size; ++k) {
          const double x =
              layout.is_masked() ? a.at({row / a.size(1), row % a.size(1), k}) : a.at({row, k});
          sum += x * b.at({rows.expert, n, k});
        }
        product.push_back(sum);
      }
      const size_t half = product.size() / 2;
      for (size_t j = 0; j < (activation.is_none() ? product.size() : half); ++j) {
        values.push_back(activation.is_none() ? product[j]
                         : activation.is_interleaved()
                             ? activation(product[2 * j], product[2 * j + 1])
                             : activation(product[j], product[half + j]));
      }
    }
  }
  return values;
}

std::vector<std::string> cpu_implementations() {
  std::vector<std::string> keys;
  for (const AnyImplementation& kernel : MoEGroupedGemmFwdOp::kernel_types()) {
    if (kernel.info.devices.front() == DeviceType::kCPU) keys.push_back(kernel.info.key);
  }
  return keys;
}

TEST(GroupedGemm, EveryImplementationAgreesWithTheReferenceOnEverySmallWorkload) {
  const auto entry = spec::entry("MoEGroupedGemmFwdOp");
  int num_cases = 0;
  for (const spec::WorkloadCase& which : spec::workload_cases(*entry)) {
    if (std::find(which.tags.begin(), which.tags.end(), "small") == which.tags.end()) continue;
    ++num_cases;
    const std::vector<Tensor> inputs = spec::make_inputs(entry, which, 11);
    const auto reference =
        MoEGroupedGemmFwdOp::from_params(which.params, {.implementation = "reference"});
    const Tensor want = reference->call({inputs, {}})[0];
    const MGroupedLayout layout = MGroupedLayout::from_value(reference->params().at("layout"));
    const int64_t num_experts = inputs[1].size(0);
    for (const std::string& key : cpu_implementations()) {
      const auto op = MoEGroupedGemmFwdOp::from_params(which.params, {.implementation = key});
      const Tensor outs[] = {poisoned(want.shape(), want.dtype())};
      const Tensor outs_again[] = {poisoned(want.shape(), want.dtype())};
      const Tensor got = op->call({inputs, outs})[0];
      const Tensor again = op->call({inputs, outs_again})[0];
      EXPECT_LE(relative_error(valid_rows(layout, inputs[2], num_experts, got),
                               valid_rows(layout, inputs[2], num_experts, want)),
                tolerance(inputs[0].dtype()))
          << which.id << " by " << key;
      EXPECT_TRUE(bit_equal(got, again)) << which.id << " by " << key;
      if (want.num_elements() == 0) continue;
      ASSERT_EQ(op->last_call()->kernels().size(), 1u);
      EXPECT_EQ(op->last_call()->kernels()[0].entry->implementation, key);
    }
  }
  EXPECT_GE(num_cases, 5);
}

struct Case {
  std::string name;
  MGroupedLayout layout;
  GatedActivation activation;
  std::vector<int64_t> counts;  // valid rows of each expert
  int64_t n = 0, k = 0;         // n: rows of b
  DType dtype = DType::kBF16;
  bool bias = false;
  std::optional<DType> out_dtype = std::nullopt;
};

/// Rows, metadata and NaN padding of a layout, from the counts.
struct Rows {
  Shape leading;
  Tensor metadata;
};

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Rows rows_of(const Case& c) {
  const auto num_experts = static_cast<int64_t>(c.counts.size());
  if (c.layout.is_masked())
    return {{num_experts, c.layout.max_m()}, int_tensor({num_experts}, c.counts)};
  std::vector<int64_t> psum, per_row;
  int64_t end = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t begin = round_up(end, c.layout.alignment());
    end = begin + c.counts[static_cast<size_t>(e)];
    psum.push_back(end);
    per_row.resize(static_cast<size_t>(round_up(end, c.layout.alignment())), e);
  }
  int64_t total = 0;
  for (int64_t count : c.counts) total += count;
  const int64_t a = c.layout.alignment();
  const int64_t num_rows = round_up(total + num_experts * (a - 1), a);
  per_row.resize(static_cast<size_t>(num_rows), num_experts);
  return {
      {num_rows},
      c.layout.is_per_row() ? int_tensor({num_rows}, per_row) : int_tensor({num_experts}, psum)};
}

class GroupedGemmAgainstDefinition : public ::testing::TestWithParam<Case> {};

TEST_P(GroupedGemmAgainstDefinition, PaddingIsNaNAndOutputsArePoisoned) {
  const Case& c = GetParam();
  const Rows rows = rows_of(c);
  const auto num_experts = static_cast<int64_t>(c.counts.size());
  Shape a_shape = rows.leading, out_shape = rows.leading;
  a_shape.push_back(c.k);
  out_shape.push_back(c.activation.is_none() ? c.n : c.n / 2);
  const Tensor a = poisoned(a_shape, c.dtype);
  const Tensor values = random_tensor(a_shape, c.dtype, 1);
  const RowMatrix matrix = row_matrix(c.layout, a);
  for (const ExpertRows& r : expert_rows(c.layout, rows.metadata, num_experts, matrix.num_rows)) {
    const int64_t bytes = r.num_rows * c.k * dtype_bytes(c.dtype);
    const int64_t offset = matrix.offset(r.row_begin) * dtype_bytes(c.dtype);
    std::copy_n(values.data_as<std::byte>() + offset, bytes, a.data_as<std::byte>() + offset);
  }
  const Tensor b = random_tensor({num_experts, c.n, c.k}, c.dtype, 2,
                                 1 / std::sqrt(static_cast<double>(c.k + 1)));
  const Tensor bias = c.bias ? random_tensor({num_experts, c.n}, c.dtype, 3) : Tensor();
  const std::vector<double> want = definition(c.layout, c.activation, a, b, rows.metadata, bias);
  for (const std::string& key : cpu_implementations()) {
    const MoEGroupedGemmFwdOp op(c.layout, c.activation, c.out_dtype, {.implementation = key});
    const Tensor out = poisoned(out_shape, c.out_dtype.value_or(c.dtype));
    op(a, b, rows.metadata, {.bias = bias, .out = out});
    EXPECT_LE(relative_error(valid_rows(c.layout, rows.metadata, num_experts, out), want),
              tolerance(c.dtype))
        << key;
  }
}

const auto kTight = MGroupedLayout::contiguous();
const auto kSilu = GatedActivation::silu_and_mul;

INSTANTIATE_TEST_SUITE_P(
    Layouts, GroupedGemmAgainstDefinition,
    ::testing::Values(
        Case{"one_row", kTight, {}, {1}, 3, 5}, Case{"no_rows_at_all", kTight, {}, {0, 0, 0}, 8, 8},
        Case{"first_and_last_expert_empty", kTight, {}, {0, 33, 1, 0}, 65, 31},
        Case{"all_rows_on_one_expert", kTight, {}, {0, 0, 129, 0}, 64, 64},
        Case{"per_row", MGroupedLayout::tight_per_row(), {}, {2, 0, 31, 32}, 33, 63},
        Case{"aligned_psum", MGroupedLayout::aligned_physical_psum(16), {}, {1, 0, 17, 16}, 31, 65},
        Case{"aligned_per_row", MGroupedLayout::aligned_per_row(8), {}, {7, 9, 0, 1}, 128, 127},
        Case{"masked", MGroupedLayout::masked(9), {}, {9, 0, 3}, 17, 257},
        Case{"masked_none_valid", MGroupedLayout::masked(4), {}, {0, 0}, 4, 4},
        Case{"f16", kTight, {}, {63, 65}, 48, 48, DType::kF16},
        Case{"bias", kTight, {}, {5, 0, 2}, 24, 40, DType::kBF16, true},
        Case{"f32_output", kTight, {}, {5, 2}, 24, 40, DType::kBF16, false, DType::kF32},
        Case{"k_is_zero_with_bias", kTight, {}, {3}, 6, 0, DType::kBF16, true}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Activations, GroupedGemmAgainstDefinition,
    ::testing::Values(
        Case{"silu", kTight, kSilu, {31, 1}, 66, 33},
        Case{"silu_masked", MGroupedLayout::masked(33), kSilu, {33, 2}, 34, 32},
        Case{"gelu_erf", kTight, GatedActivation::gelu_and_mul, {4, 3}, 20, 16, DType::kF16},
        Case{"gelu_tanh", kTight, GatedActivation::gelu_tanh_and_mul, {4, 3}, 20, 16, DType::kF16},
        Case{
            "swigluoai", kTight, GatedActivation::swigluoai(), {4, 30}, 20, 16, DType::kBF16, true},
        Case{"swigluoai_other_limit",
             kTight,
             GatedActivation::swigluoai(1.0, 0.5),
             {4, 3},
             62,
             16,
             DType::kF16,
             true},
        Case{"silu_bias_f32",
             MGroupedLayout::aligned_physical_psum(4),
             kSilu,
             {3, 0, 8},
             10,
             7,
             DType::kBF16,
             true,
             DType::kF32}),
    [](const auto& info) { return info.param.name; });

TEST(GroupedGemm, GateComesBeforeUpInStackedRowsAndAlternatesInSwigluoai) {
  // One row, H = 1: gate = 2·x, up = 3·x with x = 1; nothing is symmetric in gate and up.
  const Tensor a = Tensor::from_values({1, 1}, DType::kBF16, std::vector<double>{1});
  const Tensor b = Tensor::from_values({1, 2, 1}, DType::kBF16, std::vector<double>{2, 3});
  const Tensor metadata = int_tensor({1}, {1});
  const double sigmoid2 = 1 / (1 + std::exp(-2.0));
  for (const std::string& key : cpu_implementations()) {
    const OpOptions options{.implementation = key};
    const auto run = [&](const GatedActivation& activation) {
      return MoEGroupedGemmFwdOp(kTight, activation, DType::kF32, options)(a, b, metadata)
          .at({0, 0});
    };
    EXPECT_NEAR(run(kSilu), 2 * sigmoid2 * 3, 1e-5) << key;
    EXPECT_NEAR(run(GatedActivation::gelu_and_mul), std::erfc(-2 / std::sqrt(2.0)) * 3, 1e-5)
        << key;
    EXPECT_NEAR(run(GatedActivation::gelu_tanh_and_mul),
                (1 + std::tanh(std::sqrt(2 / M_PI) * (2 + 0.044715 * 8))) * 3, 1e-5)
        << key;
    EXPECT_NEAR(run(GatedActivation::swigluoai()), 2 / (1 + std::exp(-1.702 * 2)) * 4, 1e-5) << key;
    EXPECT_NEAR(run(GatedActivation::swigluoai(1.702, 1.5)),
                1.5 / (1 + std::exp(-1.702 * 1.5)) * 2.5, 1e-5)
        << key;
  }
}

TEST(GroupedGemm, StridedInputsAndOutputsAreHonoured) {
  const Tensor a_wide = random_tensor({6, 40}, DType::kBF16, 4);
  const Tensor a = a_wide.narrow(1, 3, 16);
  const Tensor b = random_tensor({2, 16, 24}, DType::kBF16, 5, 0.2).transpose(1, 2);
  const Tensor metadata =
      int_tensor({4}, {4, 4, 6, 6}).reshape({2, 2}).transpose(0, 1).select(0, 0);
  ASSERT_FALSE(metadata.is_contiguous());
  const std::vector<double> want = definition(kTight, {}, a, b, metadata, {});
  for (const std::string& key : cpu_implementations()) {
    const Tensor out = poisoned({24, 6}, DType::kBF16).transpose(0, 1);
    MoEGroupedGemmFwdOp(kTight, {}, std::nullopt, {.implementation = key})(a, b, metadata,
                                                                           {.out = out});
    EXPECT_LE(relative_error(elements(out), want), tolerance(DType::kBF16)) << key;
  }
}

TEST(GroupedGemm, MetadataThatBreaksItsRulesNeverLeadsOutside) {
  const Tensor a = random_tensor({4, 8}, DType::kBF16, 6),
               b = random_tensor({3, 8, 8}, DType::kBF16, 7);
  for (const auto& bad :
       {std::vector<int64_t>{-5, 2147483647, -2147483648}, {4, 2, 1}, {100, 200, 300}}) {
    for (const std::string& key : cpu_implementations()) {
      const MoEGroupedGemmFwdOp op(kTight, {}, std::nullopt, {.implementation = key});
      EXPECT_NO_THROW(op(a, b, int_tensor({3}, bad)));
    }
  }
  const MoEGroupedGemmFwdOp checking(kTight, {}, std::nullopt, {.validate_inputs = true});
  try {
    checking(a, b, int_tensor({3}, {4, 2, 1}));
    FAIL() << "a falling psum must be refused where values are checked";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kValue);
    EXPECT_THAT(error.what(), HasSubstr("layout_metadata"));
  }
}

TEST(GroupedGemm, RowsOfEachLayoutAreWhereTheSpecSays) {
  const auto rows = [](const MGroupedLayout& layout, const std::vector<int64_t>& metadata,
                       int64_t num_experts, int64_t num_rows) {
    std::vector<std::vector<int64_t>> found;
    const Tensor tensor = int_tensor({static_cast<int64_t>(metadata.size())}, metadata);
    for (const ExpertRows& r : expert_rows(layout, tensor, num_experts, num_rows)) {
      found.push_back({r.expert, r.row_begin, r.num_rows});
    }
    return found;
  };
  using Rows = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(rows(kTight, {2, 2, 5}, 3, 5), (Rows{{0, 0, 2}, {2, 2, 3}}));
  EXPECT_EQ(rows(MGroupedLayout::aligned_physical_psum(4), {1, 4, 9}, 3, 12),
            (Rows{{0, 0, 1}, {2, 4, 5}}));
  EXPECT_EQ(rows(MGroupedLayout::aligned_per_row(2), {0, 0, 2, 2, 3, 3}, 3, 6),
            (Rows{{0, 0, 2}, {2, 2, 2}}));
  EXPECT_EQ(rows(MGroupedLayout::masked(4), {4, 0, 1}, 3, 12), (Rows{{0, 0, 4}, {2, 8, 1}}));
}

TEST(GroupedGemm, OneEntryServesTheRowCountsOfABucket) {
  const MoEGroupedGemmFwdOp op(kTight);
  const Tensor b = random_tensor({2, 8, 8}, DType::kBF16, 8);
  for (int64_t rows : {33, 34, 50, 64})
    op(random_tensor({rows, 8}, DType::kBF16, 9), b, int_tensor({2}, {1, rows}));
  EXPECT_EQ(op.built_entries("grouped_gemm").size(), 1u) << "17 to 32 rows an expert";
  op(random_tensor({65, 8}, DType::kBF16, 9), b, int_tensor({2}, {1, 65}));
  EXPECT_EQ(op.built_entries("grouped_gemm").size(), 2u);
}

TEST(GroupedGemm, ErrorsNameOpTensorRuleAndWhatCame) {
  const MoEGroupedGemmFwdOp op(kTight);
  const Tensor a = random_tensor({4, 8}, DType::kBF16, 1), metadata = int_tensor({2}, {1, 4});
  const auto text_of = [&](const Tensor& b, const Tensor& meta) {
    try {
      op(a, b, meta);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(
      text_of(random_tensor({2, 8, 7}, DType::kBF16, 2), metadata),
      "MoEGroupedGemmFwdOp: b has shape [2, 8, 7]; the spec says [E, N, K] with K = 8 (from a)");
  EXPECT_THAT(text_of(random_tensor({2, 8, 8}, DType::kF16, 2), metadata),
              HasSubstr("b has dtype float16"));
  EXPECT_THAT(text_of(random_tensor({2, 8, 8}, DType::kBF16, 2), Tensor()),
              HasSubstr("layout_metadata"));
  EXPECT_THROW(op.last_call(), Error);
}

}  // namespace
}  // namespace tileops
