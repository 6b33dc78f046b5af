// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tileops/spec/allocation_count_testing.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/signature_testing.h"

namespace tileops::spec {
namespace {

SumValue contiguous(std::string packing, std::string kind, int64_t alignment = 1) {
  return {"MGroupedLayout",
          "contiguous",
          {{"packing", std::move(packing)},
           {"metadata_kind", std::move(kind)},
           {"alignment", alignment}}};
}
SumValue tight() { return contiguous("tight", "physical_psum"); }

class GroupedGemm : public ::testing::Test {
 protected:
  const std::shared_ptr<const Entry> entry_ = spec::entry("MoEGroupedGemmFwdOp");
  Tensor a_ = tensor({10, 2048});
  Tensor b_ = tensor({8, 4096, 2048});
  Tensor metadata_ = tensor({8}, DType::kI32);
  Tensor bias_;
  std::vector<Tensor> outs_;
  CallFacts facts_;

  void check(const Signature& signature) {
    const std::vector<Tensor> inputs = {a_, b_, metadata_, bias_};
    signature.check({inputs, outs_}, facts_);
  }
  std::string error(ErrorKind kind, Params params = {{"layout", tight()}}) {
    const Signature signature(entry_, std::move(params));
    return message_of([&] { check(signature); }, kind);
  }
  int64_t index(std::string_view name) const {
    return facts_.indices[static_cast<size_t>(entry_->index_slot(name))].dim;
  }
};

/// After a former call everything must come out as without one.
TEST_F(GroupedGemm, AFormerCallChangesNothing) {
  const Signature signature(entry_, {{"layout", tight()}});
  check(signature);
  const CallFacts former = facts_;
  const auto expect_as_alone = [&](const char* what) {
    const std::vector<Tensor> inputs = {a_, b_, metadata_, bias_};
    CallFacts alone, after;
    std::string error_alone, error_after;
    const auto run = [&](CallFacts& facts, const CallFacts* with, std::string& error) {
      try {
        signature.check({inputs, outs_}, facts, with);
      } catch (const Error& e) {
        error = e.what();
      }
    };
    run(alone, nullptr, error_alone);
    run(after, &former, error_after);
    EXPECT_EQ(error_after, error_alone) << what;
    if (!error_alone.empty()) return;
    EXPECT_TRUE(std::ranges::equal(after.inputs, alone.inputs)) << what;
    EXPECT_TRUE(std::ranges::equal(after.outputs, alone.outputs)) << what;
    ASSERT_EQ(after.indices.size(), alone.indices.size()) << what;
    for (size_t i = 0; i < after.indices.size(); ++i) {
      EXPECT_EQ(after.indices[i].dim, alone.indices[i].dim) << what << i;
      EXPECT_EQ(after.indices[i].kind, alone.indices[i].kind) << what << i;
    }
    EXPECT_EQ(after.device, alone.device) << what;
    EXPECT_EQ(after.effect_branch, alone.effect_branch) << what;
    EXPECT_EQ(after.writes, alone.writes) << what;
    EXPECT_EQ(after.writes_elements, alone.writes_elements) << what;
  };
  expect_as_alone("the same");
  outs_ = {tensor({10, 4096})};
  expect_as_alone("a buffer");
  outs_ = {tensor({4096, 10}).transpose(0, 1)};
  expect_as_alone("a buffer of other strides");
  outs_ = {tensor({10, 4095})};
  expect_as_alone("a wrong buffer");
  outs_ = {a_};
  expect_as_alone("an input as the buffer");
  outs_ = {};
  a_ = tensor({11, 2048});
  expect_as_alone("more rows");
  a_ = tensor({0, 2048});
  expect_as_alone("no rows");
  a_ = tensor({10, 2047});
  expect_as_alone("another K");
  a_ = tensor({2048, 10}).transpose(0, 1);
  expect_as_alone("other strides");
  a_ = tensor({10, 2048}, DType::kF16);
  expect_as_alone("another dtype");
  a_ = tensor({10, 2048});
  bias_ = tensor({8, 4096});
  expect_as_alone("a bias");
  bias_ = tensor({8, 4095});
  expect_as_alone("a wrong bias");
  bias_ = Tensor();
  metadata_ = tensor({9}, DType::kI32);
  expect_as_alone("wrong metadata");
  metadata_ = Tensor();
  expect_as_alone("no metadata");
  metadata_ = tensor({8}, DType::kI32);
  a_ = Tensor::empty({10, 2048}, DType::kBF16, kMetaDevice);
  b_ = Tensor::empty({8, 4096, 2048}, DType::kBF16, kMetaDevice);
  expect_as_alone("two devices");
  metadata_ = Tensor::empty({8}, DType::kI32, kMetaDevice);
  expect_as_alone("another device");
}

TEST_F(GroupedGemm, SolvesIndicesAndInfersTheOutput) {
  check(Signature(entry_, {{"layout", tight()}}));
  EXPECT_EQ(index("P"), 10);
  EXPECT_EQ(index("E"), 8);
  EXPECT_EQ(index("N"), 4096);
  EXPECT_EQ(index("Nb"), 4096);
  EXPECT_EQ(index("K"), 2048);
  EXPECT_TRUE(facts_.outputs[0].present);
  EXPECT_EQ(facts_.outputs[0].shape, (Shape{10, 4096}));
  EXPECT_EQ(facts_.outputs[0].dtype, DType::kBF16);
  EXPECT_EQ(facts_.outputs[0].strides, (Strides{4096, 1}));
  EXPECT_EQ(facts_.effect_branch, "");
  EXPECT_TRUE(facts_.writes);
  EXPECT_TRUE(facts_.writes_elements);
}

TEST_F(GroupedGemm, GatedActivationHalvesTheOutput) {
  check(Signature(entry_, {{"layout", tight()}, {"activation", "silu_and_mul"}}));
  EXPECT_EQ(index("N"), 2048);
  EXPECT_EQ(index("Nb"), 4096);
  EXPECT_EQ(facts_.outputs[0].shape, (Shape{10, 2048}));
}

TEST_F(GroupedGemm, MaskedLayoutHasItsOwnShapes) {
  a_ = tensor({8, 16, 2048});
  const Signature signature(entry_, {{"layout", masked(16)}, {"out_dtype", DType::kF32}});
  check(signature);
  EXPECT_EQ(facts_.outputs[0].shape, (Shape{8, 16, 4096}));
  EXPECT_EQ(facts_.outputs[0].dtype, DType::kF32);
  a_ = tensor({8, 15, 2048});
  EXPECT_EQ(
      message_of([&] { check(signature); }, ErrorKind::kShape),
      "MoEGroupedGemmFwdOp: a has shape [8, 15, 2048]; the spec says [E, layout.max_m, K] with "
      "layout.max_m = 16");
}

TEST_F(GroupedGemm, PerRowMetadataHasARowEach) {
  metadata_ = tensor({9}, DType::kI32);
  EXPECT_EQ(error(ErrorKind::kShape, {{"layout", contiguous("tight", "per_row")}}),
            "MoEGroupedGemmFwdOp: layout_metadata has shape [9]; the spec says [P] with P = 10 "
            "(from a)");
}

TEST_F(GroupedGemm, NamesTensorSpecValueAndOrigin) {
  b_ = tensor({8, 4096, 2047});
  EXPECT_EQ(
      error(ErrorKind::kShape),
      "MoEGroupedGemmFwdOp: b has shape [8, 4096, 2047]; the spec says [E, N, K] with K = 2048 "
      "(from a)");
  b_ = tensor({8, 4095, 2048});
  EXPECT_EQ(
      error(ErrorKind::kShape, {{"layout", tight()}, {"activation", "gelu_and_mul"}}),
      "MoEGroupedGemmFwdOp: b has shape [8, 4095, 2048]; the spec says [E, 2 * N, K], and 4095 "
      "is no 2 * N");
  b_ = tensor({8, 4096});
  EXPECT_EQ(error(ErrorKind::kShape),
            "MoEGroupedGemmFwdOp: b has shape [8, 4096]; the spec says [E, N, K]");
}

TEST_F(GroupedGemm, ChecksDTypes) {
  a_ = tensor({10, 2048}, DType::kF32);
  EXPECT_EQ(error(ErrorKind::kDType),
            "MoEGroupedGemmFwdOp: a has dtype float32; the spec says D in float16 | bfloat16");
  a_ = tensor({10, 2048}, DType::kF16);
  EXPECT_EQ(error(ErrorKind::kDType),
            "MoEGroupedGemmFwdOp: b has dtype bfloat16; the spec says D with D = float16 (from a)");
  a_ = tensor({10, 2048});
  metadata_ = tensor({8}, DType::kI64);
  EXPECT_EQ(error(ErrorKind::kDType),
            "MoEGroupedGemmFwdOp: layout_metadata has dtype int64; the spec says int32");
}

TEST_F(GroupedGemm, ChecksPresenceAndCounts) {
  const Tensor b = b_;
  b_ = {};
  EXPECT_EQ(error(ErrorKind::kType), "MoEGroupedGemmFwdOp: b is absent; the spec requires it");
  b_ = b;
  const Signature signature(entry_, {{"layout", tight()}});
  EXPECT_EQ(message_of([&] { signature.check({}, facts_); }, ErrorKind::kType),
            "MoEGroupedGemmFwdOp: takes 4 input tensors, got 0");
  outs_.resize(2);
  EXPECT_EQ(error(ErrorKind::kType), "MoEGroupedGemmFwdOp: takes 1 output buffers, got 2");
}

TEST_F(GroupedGemm, ChecksAnOptionalInputWhereItComes) {
  bias_ = tensor({8, 4095});
  EXPECT_EQ(
      error(ErrorKind::kShape),
      "MoEGroupedGemmFwdOp: bias has shape [8, 4095]; the spec says [E, N] with N = 4096 (from "
      "b)");
  bias_ = tensor({8, 4096});
  check(Signature(entry_, {{"layout", tight()}}));
  EXPECT_TRUE(facts_.inputs[3].present);
}

TEST_F(GroupedGemm, AllTensorsAreOnOneDevice) {
  a_ = tensor({10, 2048}, DType::kBF16, kMetaDevice);
  EXPECT_EQ(error(ErrorKind::kDevice),
            "MoEGroupedGemmFwdOp: b is on cpu; a is on meta, and the spec says one device");
  b_ = tensor({8, 4096, 2048}, DType::kBF16, kMetaDevice);
  metadata_ = tensor({8}, DType::kI32, kMetaDevice);
  check(Signature(entry_, {{"layout", tight()}}));
  EXPECT_EQ(facts_.device, kMetaDevice);
  EXPECT_EQ(facts_.outputs[0].device, kMetaDevice);
}

TEST_F(GroupedGemm, Contract_D1_OutIsCheckedAndOverlapsNoInput) {
  a_ = tensor({10, 4096});
  b_ = tensor({8, 4096, 4096});
  outs_ = {a_};
  EXPECT_EQ(
      error(ErrorKind::kValue),
      "MoEGroupedGemmFwdOp: out overlaps a; the spec says that one is written while the other "
      "is read");
  outs_ = {tensor({10, 4095})};
  EXPECT_EQ(error(ErrorKind::kShape),
            "MoEGroupedGemmFwdOp: out has shape [10, 4095]; the spec says [P, N] = [10, 4096]");
  outs_ = {tensor({10, 4096}, DType::kF32)};
  EXPECT_THAT(error(ErrorKind::kDType), ::testing::HasSubstr("out has dtype float32"));
  outs_ = {tensor({1, 4096}).as_strided({10, 4096}, {0, 1}, 0)};
  EXPECT_EQ(
      error(ErrorKind::kShape),
      "MoEGroupedGemmFwdOp: out has strides [0, 1] for shape [10, 4096]: its elements overlap "
      "each other");
  outs_ = {tensor({4096, 10}).transpose(0, 1)};
  const Signature signature(entry_, {{"layout", tight()}});
  check(signature);
  EXPECT_EQ(facts_.effect_branch, "out");
  EXPECT_EQ(facts_.outputs[0].strides, (Strides{1, 10}));
}

TEST_F(GroupedGemm, NonContiguousInputsAreTaken) {
  a_ = tensor({2048, 10}).transpose(0, 1);
  check(Signature(entry_, {{"layout", tight()}}));
  EXPECT_EQ(facts_.inputs[0].strides, (Strides{1, 10}));
}

TEST_F(GroupedGemm, NoRowsWriteNoElements) {
  a_ = tensor({0, 2048});
  check(Signature(entry_, {{"layout", tight()}}));
  EXPECT_TRUE(facts_.writes);
  EXPECT_FALSE(facts_.writes_elements);
}

TEST_F(GroupedGemm, AnOutputBeyondInt64IsRefused) {
  const int64_t huge = int64_t{1} << 33;
  a_ = tensor({huge, 0}, DType::kBF16, kMetaDevice);
  b_ = tensor({8, huge, 0}, DType::kBF16, kMetaDevice);
  metadata_ = tensor({8}, DType::kI32, kMetaDevice);
  EXPECT_EQ(error(ErrorKind::kShape),
            "MoEGroupedGemmFwdOp: signature.outputs.out.shape: '[P, N]' failed: integer overflow");
}

TEST_F(GroupedGemm, ParametersAreCheckedAtConstruction) {
  const auto construct = [&](Params params) {
    return [this, params] { Signature(entry_, params); };
  };
  EXPECT_EQ(message_of(construct({}), ErrorKind::kType),
            "MoEGroupedGemmFwdOp: parameter layout is missing; the spec says MGroupedLayout");
  EXPECT_EQ(message_of(construct({{"layout", 3}}), ErrorKind::kType),
            "MoEGroupedGemmFwdOp: parameter layout must be MGroupedLayout, got 3");
  EXPECT_THAT(message_of(construct({{"layuot", 3}}), ErrorKind::kType),
              ::testing::StartsWith("MoEGroupedGemmFwdOp: there is no parameter layuot; its "
                                    "parameters: layout, activation, out_dtype"));
  EXPECT_EQ(
      message_of(construct({{"layout", contiguous("tight", "per_row", 8)}}), ErrorKind::kValue),
      "MoEGroupedGemmFwdOp: parameter layout must satisfy '(packing == 'tight') == (alignment "
      "== 1)', got contiguous{packing: tight, metadata_kind: per_row, alignment: 8}");
  EXPECT_EQ(
      message_of(construct({{"layout", masked(0)}}), ErrorKind::kValue),
      "MoEGroupedGemmFwdOp: parameter layout must satisfy 'max_m >= 1', got masked{max_m: 0}");
  EXPECT_EQ(message_of(construct({{"layout", tight()}, {"activation", "relu"}}), ErrorKind::kValue),
            "MoEGroupedGemmFwdOp: parameter activation must be a GatedActivation (silu_and_mul | "
            "gelu_and_mul | gelu_tanh_and_mul | swigluoai), got relu");
  EXPECT_EQ(
      message_of(construct({{"layout", tight()}, {"out_dtype", DType::kF16}}), ErrorKind::kValue),
      "MoEGroupedGemmFwdOp: parameter out_dtype must be float32 | None, got float16");
}

TEST_F(GroupedGemm, DefaultsAreFilledIn) {
  const Signature signature(entry_, {{"activation", "swigluoai"}, {"layout", tight()}});
  EXPECT_THAT(to_string(signature.params()),
              ::testing::StartsWith(
                  "layout=contiguous{packing: tight, metadata_kind: physical_psum, alignment: 1}, "
                  "activation=swigluoai{alpha: 1.702, limit: 7.0}, out_dtype=None"));
  EXPECT_EQ(to_string(signature.value_of(facts_, "out_dtype")), "None");
}

TEST_F(GroupedGemm, Contract_D9_ACheckAllocatesNothing) {
  const Signature signature(entry_, {{"layout", tight()}});
  const std::vector<Tensor> inputs = {a_, b_, metadata_, bias_};
  const std::vector<Tensor> outs = {tensor({10, 4096})};
  const int64_t before = allocation_count();
  signature.check({inputs, outs}, facts_);
  EXPECT_EQ(allocation_count(), before);
}

TEST_F(GroupedGemm, ContentsAreHeldToRequires) {
  const Signature signature(entry_, {{"layout", contiguous("aligned", "physical_psum", 4)}});
  a_ = tensor({16, 2});
  b_ = tensor({3, 2, 2});
  const auto contents = [&](std::vector<double> psum) {
    metadata_ = Tensor::from_values({3}, DType::kI32, psum);
    const std::vector<Tensor> inputs = {a_, b_, metadata_, bias_};
    signature.check({inputs, {}}, facts_);
    signature.check_contents({inputs, {}}, facts_);
  };
  contents({3, 6, 8});
  contents({0, 0, 16});
  EXPECT_THAT(
      message_of(
          [&] {
            contents({3, 3, 8});
          },
          ErrorKind::kValue),
      ::testing::StartsWith("MoEGroupedGemmFwdOp: layout_metadata[1] is 3; the spec requires "));
  EXPECT_THAT(
      message_of(
          [&] {
            contents({3, 6, 17});
          },
          ErrorKind::kValue),
      ::testing::StartsWith("MoEGroupedGemmFwdOp: layout_metadata[2] is 17; the spec requires "
                            "all(layout_metadata[e] <= P for e in range(E)) with P = 16 (from "
                            "a)"));
}

TEST_F(GroupedGemm, Contract_D1_ResultsAreHeldToTheInference) {
  a_ = tensor({4, 8});
  b_ = tensor({2, 8, 8});
  metadata_ = tensor({2}, DType::kI32);
  const Signature signature(entry_, {{"layout", tight()}});
  check(signature);
  const std::vector<Tensor> inputs = {a_, b_, metadata_, bias_};
  const auto result = [&](std::vector<Tensor> results, std::vector<Tensor> held = {}) {
    return message_of(
        [&] {
          signature.check_result({inputs, outs_}, facts_, results, held, "acme");
        },
        ErrorKind::kBackend);
  };
  const Tensor fine = signature.allocate_output({inputs, {}}, facts_, 0);
  EXPECT_EQ(result({fine}), "no error");
  EXPECT_EQ(result({}), "MoEGroupedGemmFwdOp: acme gave 0 outputs; the spec says 1");
  EXPECT_EQ(result({Tensor()}),
            "MoEGroupedGemmFwdOp: acme gave no out; the spec says that it is there in this call");
  EXPECT_EQ(result({tensor({4, 9})}),
            "MoEGroupedGemmFwdOp: out has shape [4, 9] of acme; the spec says [4, 8]");
  EXPECT_EQ(result({tensor({4, 8}, DType::kF16)}),
            "MoEGroupedGemmFwdOp: out of acme has dtype float16; the spec says bfloat16");
  EXPECT_EQ(result({tensor({4, 8}, DType::kBF16, kMetaDevice)}),
            "MoEGroupedGemmFwdOp: out of acme is on meta; the call is on cpu");
  EXPECT_EQ(result({tensor({8, 4}).transpose(0, 1)}),
            "MoEGroupedGemmFwdOp: out of acme has strides [1, 4]; the spec says contiguous");
  EXPECT_EQ(result({a_}), "MoEGroupedGemmFwdOp: out of acme shares storage with a");
  EXPECT_EQ(
      result({fine}, {fine}),
      "MoEGroupedGemmFwdOp: out of acme shares storage with a tensor that the instance holds");
  outs_ = {tensor({4, 8})};
  check(signature);
  EXPECT_EQ(result({outs_[0]}), "no error");
  EXPECT_EQ(result({fine}), "MoEGroupedGemmFwdOp: out of acme is not the out that was given");
}

TEST(Registry, Contract_A3_CompileBoundaryIsInputsWithoutComposition) {
  EXPECT_TRUE(spec::entry("MoEGroupedGemmFwdOp")->has_compile_boundary());
  EXPECT_FALSE(spec::entry("MoEExpertMLPFwdOp")->has_compile_boundary());
}

TEST(Registry, Contract_A2_CompositionIsInStageOrder) {
  const auto stages = spec::entry("MoEExpertMLPFwdOp")->composition();
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].name, "gate_up");
  EXPECT_EQ(stages[1].name, "down");
  EXPECT_EQ(stages[1].op, "MoEGroupedGemmFwdOp");
}

TEST(Registry, Contract_B6_SignaturesCompare) {
  const auto gemm = spec::entry("MoEGroupedGemmFwdOp");
  EXPECT_TRUE(gemm->same_signature(*gemm));
  EXPECT_FALSE(gemm->same_signature(*spec::entry("MoEExpertMLPFwdOp")));
}

}  // namespace
}  // namespace tileops::spec
