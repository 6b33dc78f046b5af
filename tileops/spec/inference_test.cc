// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tileops/core/error_testing.h"
#include "tileops/spec/effects.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/signature_testing.h"

namespace tileops::spec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

SumValue aligned(int64_t alignment) {
  return {"MGroupedLayout",
          "contiguous",
          {{"packing", "aligned"}, {"metadata_kind", "physical_psum"}, {"alignment", alignment}}};
}

json inference(const char* op, const Params& params) {
  return json::parse(inference_json(Signature(entry(op), params)));
}

TEST(Inference, FoldsTheParametersIntoTheCaseThatTheyChoose) {
  const json gemm =
      inference("MoEGroupedGemmFwdOp", {{"layout", masked(16)}, {"activation", "silu_and_mul"}});
  EXPECT_EQ(gemm["op"], "MoEGroupedGemmFwdOp");
  EXPECT_EQ(gemm["deciding"], json::array());
  ASSERT_EQ(gemm["cases"].size(), 1u);
  const json& output = gemm["cases"][0]["outputs"][0];
  EXPECT_EQ(output["shape"], json::parse(R"([["index", 0], 16, ["index", 2]])"));
  EXPECT_EQ(output["dtype"], json::parse(R"(["index", 4])"));
  EXPECT_EQ(output["when"], true);
  EXPECT_THAT(gemm["cases"][0]["steps"].dump(), HasSubstr(R"(["affine",1,1,2,2,0])"));
  EXPECT_EQ(gemm["cases"][0]["ranks"][0], json::parse(R"(["[E, layout.max_m, K]", 3, false])"));
}

TEST(Inference, WritesArithmeticAsTrees) {
  const json permute =
      inference("MoEPrePermuteFwdOp", {{"layout", aligned(8)}, {"num_local_experts", int64_t{3}}});
  EXPECT_EQ(permute["cases"][0]["outputs"][0]["shape"][0],
            json::parse(R"(["align_up", ["+", ["*", ["index", 0], ["index", 1]], 21], 8])"));
  const json align =
      inference("MoEPermuteAlignFwdOp", {{"num_experts", int64_t{3}}, {"block_size", int64_t{4}}});
  EXPECT_EQ(align["cases"][0]["outputs"][1]["shape"][0],
            json::parse(R"(["ceil_div", ["index", 2], 4])"));
  EXPECT_EQ(align["cases"][0]["steps"].back(),
            json::parse(R"(["let", 2, ["+", ["*", ["index", 0], ["index", 1]], 12]])"));
}

TEST(Inference, SaysWhetherAnOutputIsThere) {
  const auto present = [](bool count) {
    return inference("FusedTopKFwdOp", {{"top_k", int64_t{2}},
                                        {"count_tokens", count}})["cases"][0]["outputs"][2]["when"];
  };
  EXPECT_EQ(present(true), true);
  EXPECT_EQ(present(false), false);
}

TEST(Inference, ADTypeThatAParameterGivesIsOne) {
  const json gemm =
      inference("MoEGroupedGemmFwdOp", {{"layout", aligned(8)}, {"out_dtype", DType::kF32}});
  EXPECT_EQ(gemm["cases"][0]["outputs"][0]["dtype"], json::parse(R"(["dtype", "float32"])"));
}

class ExpertsExpr : public ::testing::Test {
 protected:
  const Signature signature_{entry("FusedMoEExpertsFwdOp"), {}};

  int64_t value(const char* text, int64_t tokens) const {
    const auto meta = [](const Shape& shape, DType dtype) {
      return Tensor::empty(shape, dtype, kMetaDevice);
    };
    const Tensor inputs[] = {meta({tokens, 8}, DType::kBF16),
                             meta({tokens, 2}, DType::kF32),
                             meta({tokens, 2}, DType::kI32),
                             meta({4, 6, 8}, DType::kBF16),
                             meta({4, 8, 3}, DType::kBF16),
                             Tensor(),
                             Tensor()};
    CallFacts facts;
    signature_.check({inputs, {}}, facts);
    return CallExpr(signature_, text).evaluate(facts);
  }
};

TEST_F(ExpertsExpr, IsASizeOrAPredicateOverTheCallsIndices) {
  EXPECT_EQ(value("E", 5), 4);
  EXPECT_EQ(value("T * K <= 512", 256), 1);
  EXPECT_EQ(value("T * K <= 512", 257), 0);
  EXPECT_EQ(value("present(b_down)", 5), 0);
  EXPECT_EQ(CallExpr(signature_, "T * K <= 512").json(),
            R"(["<=",["*",["index",0],["index",1]],512])");
}

TEST_F(ExpertsExpr, RefusesWhatTheEntryDoesNotName) {
  EXPECT_THAT(error_of([&] { CallExpr(signature_, "Z + 1"); }),
              HasSubstr("FusedMoEExpertsFwdOp: 'Z + 1': "));
  EXPECT_THAT(error_of([&] { CallExpr(signature_, "D"); }), HasSubstr("not a size or a predicate"));
  EXPECT_THAT(error_of([&] { CallExpr(signature_, "T *"); }), HasSubstr("'T *'"));
}

TEST(Effects, EachBranchSaysWhatItWritesAndMakes) {
  const auto gemm = entry("MoEGroupedGemmFwdOp");
  const std::vector<EffectBranch> branches = effect_branches(*gemm);
  ASSERT_EQ(branches.size(), 2u);
  EXPECT_EQ(branches[0].name, "");
  EXPECT_EQ(fresh_outputs(*gemm, branches[0]), std::vector<int>{0});
  EXPECT_EQ(branches[1].name, "out");
  EXPECT_EQ(branches[1].outs, std::vector<int>{0});
  EXPECT_TRUE(fresh_outputs(*gemm, branches[1]).empty());
}

TEST(Signature, FingerprintTellsParametersApart) {
  const auto fingerprint = [](int64_t top_k) {
    return Signature(entry("FusedTopKFwdOp"), {{"top_k", top_k}}).fingerprint();
  };
  EXPECT_EQ(fingerprint(2), fingerprint(2));
  EXPECT_NE(fingerprint(2), fingerprint(3));
}

}  // namespace
}  // namespace tileops::spec
