// SPDX-License-Identifier: Apache-2.0
// What the language of signatures can say, on small entries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tileops/spec/registry.h"
#include "tileops/spec/signature.h"
#include "tileops/spec/signature_testing.h"

namespace tileops::spec {
namespace {

constexpr const char* kToy = R"yaml(
types:
  Mode: {enum: [fast, exact]}
ToyScaleOp:
  family: toy
  status: spec-only
  signature:
    forall: {S: Shape, M: Dim, N: Dim, R: Dim, T: "DType[float16 | float32]", U: "DType[float16 | float32]"}
    params: {mode: {type: Mode, default: fast}, groups: {type: int, default: 2}, list: {type: "list[int]", default: [1, 2]}}
    construction_tensors: {table: {dtype: float32, shape: "[R]"}}
    inputs:
      x: {dtype: T, shape: "[*S, groups * N + 1, M]"}
      y: {dtype: U, shape: "[N]", contiguous: true}
      state: {dtype: float32, shape: "[M]", optional: true, mutated: "mode == 'exact'", group: extra}
      scale: {dtype: float32, shape: "[R]", optional: true, group: extra, keyword_only: true, device: cpu}
    outputs:
      z: {dtype: T, shape: "[*S, N]"}
      w: {dtype: U, shape: "[M * N]", when: "present(state)"}
    let: {half: "N // 2"}
    shape_rules: ["groups > 0", "M % 2 == 0", "half >= 1", "R == len(list)"]
    dtype_combos: [{T: float16, U: float16}, {T: float32, U: float16}]
)yaml";

class Toy : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { load_spec_text(kToy, "toy.yaml"); }
  const std::shared_ptr<const Entry> entry_ = spec::entry("ToyScaleOp");
  std::vector<Tensor> table_ = {tensor({2}, DType::kF32)};
  Tensor x_ = tensor({5, 3, 9, 6}, DType::kF16);
  Tensor y_ = tensor({4}, DType::kF16);
  Tensor state_, scale_;
  std::optional<Signature> signature_;  // facts_ refers to it
  CallFacts facts_;

  std::string error(ErrorKind kind, const Params& params = {}) {
    return message_of(
        [&] {
          signature_.emplace(entry_, params, table_);
          const std::vector<Tensor> inputs = {x_, y_, state_, scale_};
          signature_->check({inputs, {}}, facts_);
        },
        kind);
  }
};

TEST_F(Toy, SolvesSegmentsAndAffineTermsWithParameters) {
  EXPECT_EQ(error(ErrorKind::kShape), "no error");
  EXPECT_EQ(facts_.outputs[0].shape, (Shape{5, 3, 4}));
  EXPECT_FALSE(facts_.outputs[1].present);
  EXPECT_EQ(facts_.effect_branch, "no_w");
  x_ = tensor({5, 3, 8, 6}, DType::kF16);
  EXPECT_EQ(
      error(ErrorKind::kShape),
      "ToyScaleOp: x has shape [5, 3, 8, 6]; the spec says [*S, groups * N + 1, M], and 8 is no "
      "groups * N + 1 with groups = 2");
  x_ = tensor({6}, DType::kF16);
  EXPECT_EQ(error(ErrorKind::kShape),
            "ToyScaleOp: x has shape [6]; the spec says [*S, groups * N + 1, M]");
}

TEST_F(Toy, RulesAreCheckedAsSoonAsTheyAreKnown) {
  EXPECT_EQ(error(ErrorKind::kValue, {{"groups", 0}}),
            "ToyScaleOp: the spec says groups > 0; it fails with groups = 0");
  table_ = {tensor({3}, DType::kF32)};
  EXPECT_EQ(
      error(ErrorKind::kValue),
      "ToyScaleOp: the spec says R == len(list); it fails with R = 3 (from table), list = [1, 2]");
  table_ = {tensor({2}, DType::kF32)};
  x_ = tensor({9, 7}, DType::kF16);
  EXPECT_EQ(error(ErrorKind::kShape),
            "ToyScaleOp: the spec says M % 2 == 0; it fails with M = 7 (from x)");
  x_ = tensor({3, 6}, DType::kF16);
  y_ = tensor({1}, DType::kF16);
  EXPECT_EQ(error(ErrorKind::kShape),
            "ToyScaleOp: the spec says half >= 1; it fails with half = 0 (let N // 2)");
}

TEST_F(Toy, TensorsOfAGroupComeTogether) {
  state_ = tensor({6}, DType::kF32);
  EXPECT_EQ(
      error(ErrorKind::kType),
      "ToyScaleOp: state is given and scale is absent; the spec says that they come together");
  scale_ = tensor({2}, DType::kF32);
  EXPECT_EQ(error(ErrorKind::kType), "no error");
  EXPECT_EQ(facts_.effect_branch, "");
  EXPECT_EQ(facts_.outputs[1].shape, (Shape{24}));
}

TEST_F(Toy, Contract_F1_MutationNamesItsBranch) {
  state_ = tensor({6}, DType::kF32);
  scale_ = tensor({2}, DType::kF32);
  EXPECT_EQ(error(ErrorKind::kType, {{"mode", "exact"}}), "no error");
  EXPECT_EQ(facts_.effect_branch, "mutated");
  state_ = tensor({1}, DType::kF32).as_strided({6}, {0}, 0);
  EXPECT_THAT(error(ErrorKind::kShape, {{"mode", "exact"}}),
              ::testing::HasSubstr("state is written, and has strides [0] for shape [6]"));
}

TEST_F(Toy, DTypesGoTogether) {
  y_ = tensor({4}, DType::kF32);
  EXPECT_EQ(error(ErrorKind::kDType),
            "ToyScaleOp: T = float16, U = float32 is none of the spec's dtype_combos");
}

TEST_F(Toy, ContiguousIsAskedWhereTheSpecSaysSo) {
  y_ = tensor({8}, DType::kF16).as_strided({4}, {2}, 0);
  EXPECT_EQ(error(ErrorKind::kShape),
            "ToyScaleOp: y has strides [2] for shape [4]; the spec says contiguous");
}

TEST_F(Toy, ConstructionTensorsAreCheckedAtConstruction) {
  table_ = {};
  EXPECT_EQ(error(ErrorKind::kType), "ToyScaleOp: takes 1 tensors at construction, got 0");
  table_ = {tensor({2}, DType::kF16)};
  EXPECT_EQ(error(ErrorKind::kDType), "ToyScaleOp: table has dtype float16; the spec says float32");
}

constexpr const char* kOptional = R"yaml(
OptionalSizeOp:
  family: toy
  status: spec-only
  signature:
    forall: {M: Dim, S: Dim}
    inputs:
      x: {dtype: float32, shape: "[M]"}
      w: {dtype: float32, shape: "[2 * S, M]", optional: true, group: shared}
      v: {dtype: float32, shape: "[M, S]", optional: true, group: shared}
    outputs:
      y: {dtype: float32, shape: "[M]"}
      z: {dtype: float32, shape: "[S]", when: present(w)}
    let: {half: "S // 2"}
    shape_rules: ["S % 2 == 0", "half > 0"]
)yaml";

TEST(OptionalTensors, TellIndicesWhereTheyCome) {
  load_spec_text(kOptional, "optional.yaml");
  const Signature signature(spec::entry("OptionalSizeOp"), {});
  CallFacts facts;
  const auto error = [&](Tensor w, Tensor v) {
    const std::vector<Tensor> inputs = {tensor({5}, DType::kF32), std::move(w), std::move(v)};
    return message_of([&] { signature.check({inputs, {}}, facts); }, ErrorKind::kShape);
  };
  EXPECT_EQ(error({}, {}), "no error");
  EXPECT_FALSE(facts.outputs[1].present);
  EXPECT_TRUE(signature.value_of(facts, "S").is_none());
  EXPECT_EQ(error(tensor({8, 5}, DType::kF32), tensor({5, 4}, DType::kF32)), "no error");
  EXPECT_EQ(facts.outputs[1].shape, (Shape{4}));
  EXPECT_EQ(error(tensor({8, 5}, DType::kF32), tensor({5, 3}, DType::kF32)),
            "OptionalSizeOp: v has shape [5, 3]; the spec says [M, S] with S = 4 (from w)");
  EXPECT_EQ(error(tensor({6, 5}, DType::kF32), tensor({5, 3}, DType::kF32)),
            "OptionalSizeOp: the spec says S % 2 == 0; it fails with S = 3 (from w)");
}

constexpr const char* kDerived = R"yaml(
DerivedDTypeOp:
  family: toy
  status: spec-only
  signature:
    forall: {M: Dim, T: "DType[float16 | float32]"}
    params: {wide: {type: bool, default: false}}
    inputs:
      scale: {dtype: S, shape: "[2 * half + 1]"}
      x: {dtype: T, shape: "[M]"}
    outputs: {y: {dtype: S, shape: "[half]"}}
    let: {half: "M // 2", S: "float32 if wide else T"}
)yaml";

TEST(Let, NamesSizesAndDTypesOfTensorsDeclaredBefore) {
  load_spec_text(kDerived, "derived.yaml");
  CallFacts facts;
  const auto error = [&](bool wide, const Tensor& scale, ErrorKind kind) {
    const Signature signature(spec::entry("DerivedDTypeOp"), {{"wide", wide}});
    const std::vector<Tensor> inputs = {scale, tensor({7}, DType::kF16)};
    return message_of([&] { signature.check({inputs, {}}, facts); }, kind);
  };
  EXPECT_EQ(error(false, tensor({7}, DType::kF16), ErrorKind::kDType), "no error");
  EXPECT_EQ(facts.outputs[0].dtype, DType::kF16);
  EXPECT_EQ(facts.outputs[0].shape, (Shape{3}));
  EXPECT_EQ(error(true, tensor({7}, DType::kF32), ErrorKind::kDType), "no error");
  EXPECT_EQ(
      error(true, tensor({7}, DType::kF16), ErrorKind::kDType),
      "DerivedDTypeOp: scale has dtype float16; the spec says S with S = float32 (let float32 "
      "if wide else T)");
  EXPECT_EQ(
      error(false, tensor({8}, DType::kF16), ErrorKind::kShape),
      "DerivedDTypeOp: scale has shape [8]; the spec says [2 * half + 1] with half = 3 (let M // "
      "2)");
}

TEST(Registry, NamesTheNearestEntries) {
  EXPECT_THAT(message_of([] { spec::entry("MoEGroupedGemFwdOp"); }, ErrorKind::kValue),
              ::testing::StartsWith(
                  "there is no spec entry MoEGroupedGemFwdOp; nearest: MoEGroupedGemmFwdOp"));
}

TEST(Registry, LoadsAllOrNone) {
  EXPECT_THAT(load_spec_text(kToy, "toy.yaml"), ::testing::ElementsAre("ToyScaleOp"));
  EXPECT_THAT(
      message_of([] { load_spec_text(std::string(kToy) + "\n", "other.yaml"); }, ErrorKind::kSpec),
      ::testing::HasSubstr("ToyScaleOp is known already, from toy.yaml"));
  EXPECT_THAT(message_of([] { load_spec_text("A: {family: x}\n", "bad.yaml"); }, ErrorKind::kSpec),
              ::testing::StartsWith("bad.yaml:1: S107 A.signature: signature is missing"));
  EXPECT_EQ(find_entry("A"), nullptr);
  EXPECT_THAT(message_of([] { load_spec_file("/nowhere.yaml"); }, ErrorKind::kIo),
              ::testing::HasSubstr("/nowhere.yaml: cannot be read"));
}

}  // namespace
}  // namespace tileops::spec
