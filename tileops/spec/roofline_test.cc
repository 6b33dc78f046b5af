// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tileops/core/error.h"
#include "tileops/spec/registry.h"

namespace tileops::spec {
namespace {

SumValue contiguous(const char* packing, const char* kind, int64_t alignment) {
  return {"MGroupedLayout",
          "contiguous",
          {{"packing", packing}, {"metadata_kind", kind}, {"alignment", alignment}}};
}

/// A grouped GEMM of 16 rows, 3 experts, N = 6 and K = 4.
Cost price(const Value& layout, const Shape& a, const Tensor& metadata, Device device = kCpuDevice,
           Params params = {}) {
  const auto entry = spec::entry("MoEGroupedGemmFwdOp");
  params.set("layout", layout);
  const Signature signature(entry, params);
  const std::vector<Tensor> inputs = {Tensor::empty(a, DType::kBF16, device),
                                      Tensor::empty({3, 6, 4}, DType::kBF16, device),
                                      metadata,
                                      {}};
  CallFacts facts;
  signature.check({inputs, {}}, facts);
  return evaluate_roofline({signature, facts, [&](std::string_view) { return metadata; }, nullptr});
}

Tensor ints(std::vector<double> values) {
  const auto count = static_cast<int64_t>(values.size());
  return Tensor::from_values({count}, DType::kI32, values);
}

// Rows 5, experts 2: flops 2·5·6·4; bytes 5·(4+6)·2 + 2·6·4·2 + metadata.
TEST(Roofline, Contract_J1_PricesValidRowsAndExpertsHit) {
  const Cost psum = price(contiguous("tight", "physical_psum", 1), {5, 4}, ints({2, 2, 5}));
  EXPECT_EQ(psum, (Cost{240, 100 + 96 + 12}));
  const Cost aligned = price(contiguous("aligned", "physical_psum", 4), {16, 4}, ints({2, 4, 7}));
  EXPECT_EQ(aligned, (Cost{240, 100 + 96 + 12}));
  const Cost per_row = price(contiguous("tight", "per_row", 1), {6, 4}, ints({0, 0, 2, 2, 2, 3}));
  EXPECT_EQ(per_row, (Cost{240, 100 + 96 + 24}));
  const Cost masked =
      price(SumValue{"MGroupedLayout", "masked", {{"max_m", 8}}}, {3, 8, 4}, ints({2, 0, 3}));
  EXPECT_EQ(masked, (Cost{240, 100 + 96 + 12}));
}

TEST(Roofline, OutDTypeAndActivationCount) {
  const Cost cost = price(contiguous("tight", "physical_psum", 1), {5, 4}, ints({2, 2, 5}),
                          kCpuDevice, {{"out_dtype", DType::kF32}, {"activation", "silu_and_mul"}});
  EXPECT_EQ(cost, (Cost{240, 5 * (4 * 2 + 3 * 4) + 96 + 12}));
}

TEST(Roofline, Contract_F3_MetadataOfAMetaCallIsAnError) {
  try {
    price(contiguous("tight", "physical_psum", 1), {5, 4},
          Tensor::empty({3}, DType::kI32, kMetaDevice), kMetaDevice);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kState);
    EXPECT_STREQ(error.what(),
                 "MoEGroupedGemmFwdOp: layout_metadata is on meta: it has no contents to price the "
                 "call by");
  }
}

TEST(Roofline, Contract_J1_ACompositePricesItsStages) {
  const auto entry = spec::entry("MoEExpertMLPFwdOp");
  const Signature signature(entry, {{"layout", contiguous("tight", "physical_psum", 1)}});
  const Tensor metadata = ints({2, 2, 5});
  const std::vector<Tensor> inputs = {Tensor::empty({5, 4}, DType::kBF16),
                                      Tensor::empty({3, 12, 4}, DType::kBF16),
                                      Tensor::empty({3, 4, 6}, DType::kBF16),
                                      metadata,
                                      {},
                                      {}};
  CallFacts facts;
  signature.check({inputs, {}}, facts);
  const auto read = [&](std::string_view) { return metadata; };
  EXPECT_EQ(evaluate_roofline({signature, facts, read, nullptr}).flops, 2 * 5 * 3 * 6 * 4);
  const auto staged = [](std::string_view stage, std::string_view quantity) {
    EXPECT_EQ(quantity, "flops");
    return std::optional<double>(stage == "down" ? 1000 : 100);
  };
  EXPECT_EQ(evaluate_roofline({signature, facts, read, staged}).flops, 1100);
}

constexpr const char* kDefaults = R"(
PricedOp:
  family: toy
  status: spec-only
  signature:
    forall: {M: Dim, T: "DType[float16 | float32]"}
    inputs:
      x: {dtype: T, shape: "[M]"}
      state: {dtype: T, shape: "[M]", mutated: true}
    outputs: {y: {dtype: float32, shape: "[M]"}}
  roofline: {flops: "M"}
)";

TEST(Roofline, BytesDefaultToEachTensorOnce) {
  load_spec_text(kDefaults, "priced.yaml");
  const Signature signature(spec::entry("PricedOp"), {});
  const std::vector<Tensor> inputs = {Tensor::empty({10}, DType::kF16),
                                      Tensor::empty({10}, DType::kF16)};
  CallFacts facts;
  signature.check({inputs, {}}, facts);
  EXPECT_EQ(evaluate_roofline({signature, facts, nullptr, nullptr}), (Cost{10, 20 + 2 * 20 + 40}));
}

}  // namespace
}  // namespace tileops::spec
