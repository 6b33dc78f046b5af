// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tileops/core/error.h"
#include "tileops/spec/allocation_count_testing.h"
#include "tileops/spec/registry.h"

namespace tileops::spec {
namespace {

std::string error_of(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error_kind_name(error.kind()), error_kind_name(kind)) << error.what();
    return error.what();
  }
  return "no error";
}

SumValue masked(int64_t max_m) { return {"MGroupedLayout", "masked", {{"max_m", max_m}}}; }
SumValue contiguous(std::string packing, std::string kind, int64_t alignment = 1) {
  return {"MGroupedLayout",
          "contiguous",
          {{"packing", std::move(packing)},
           {"metadata_kind", std::move(kind)},
           {"alignment", alignment}}};
}
SumValue tight() { return contiguous("tight", "physical_psum"); }

Tensor tensor(const Shape& shape, DType dtype = DType::kBF16, Device device = kCpuDevice) {
  return Tensor::empty(shape, dtype, device);
}

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
    return error_of([&] { check(signature); }, kind);
  }
  int64_t index(std::string_view name) const {
    return facts_.indices[static_cast<size_t>(entry_->index_slot(name))].dim;
  }
};

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
  EXPECT_EQ(error_of([&] { check(signature); }, ErrorKind::kShape),
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
  EXPECT_EQ(error(ErrorKind::kShape),
            "MoEGroupedGemmFwdOp: b has shape [8, 4096, 2047]; the spec says [E, N, K] with K = 2048 "
            "(from a)");
  b_ = tensor({8, 4095, 2048});
  EXPECT_EQ(error(ErrorKind::kShape, {{"layout", tight()}, {"activation", "gelu_and_mul"}}),
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
  EXPECT_EQ(error_of([&] { signature.check({}, facts_); }, ErrorKind::kType),
            "MoEGroupedGemmFwdOp: takes 4 input tensors, got 0");
  outs_.resize(2);
  EXPECT_EQ(error(ErrorKind::kType), "MoEGroupedGemmFwdOp: takes 1 output buffers, got 2");
}

TEST_F(GroupedGemm, ChecksAnOptionalInputWhereItComes) {
  bias_ = tensor({8, 4095});
  EXPECT_EQ(error(ErrorKind::kShape),
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
  EXPECT_EQ(error(ErrorKind::kValue),
            "MoEGroupedGemmFwdOp: out overlaps a; the spec says that one is written while the other "
            "is read");
  outs_ = {tensor({10, 4095})};
  EXPECT_EQ(error(ErrorKind::kShape),
            "MoEGroupedGemmFwdOp: out has shape [10, 4095]; the spec says [P, N] = [10, 4096]");
  outs_ = {tensor({10, 4096}, DType::kF32)};
  EXPECT_THAT(error(ErrorKind::kDType), ::testing::HasSubstr("out has dtype float32"));
  outs_ = {tensor({1, 4096}).as_strided({10, 4096}, {0, 1}, 0)};
  EXPECT_EQ(error(ErrorKind::kShape),
            "MoEGroupedGemmFwdOp: out has strides [0, 1] for shape [10, 4096]: its elements overlap "
            "each other");
  outs_ = {tensor({4096, 10}).transpose(0, 1)};
  check(Signature(entry_, {{"layout", tight()}}));
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
  EXPECT_EQ(error_of(construct({}), ErrorKind::kType),
            "MoEGroupedGemmFwdOp: parameter layout is missing; the spec says MGroupedLayout");
  EXPECT_EQ(error_of(construct({{"layout", 3}}), ErrorKind::kType),
            "MoEGroupedGemmFwdOp: parameter layout must be MGroupedLayout, got 3");
  EXPECT_THAT(error_of(construct({{"layuot", 3}}), ErrorKind::kType),
              ::testing::StartsWith("MoEGroupedGemmFwdOp: there is no parameter layuot; its "
                                    "parameters: layout, activation, out_dtype"));
  EXPECT_EQ(error_of(construct({{"layout", contiguous("tight", "per_row", 8)}}), ErrorKind::kValue),
            "MoEGroupedGemmFwdOp: parameter layout must satisfy '(packing == 'tight') == (alignment "
            "== 1)', got contiguous{packing: tight, metadata_kind: per_row, alignment: 8}");
  EXPECT_EQ(error_of(construct({{"layout", masked(0)}}), ErrorKind::kValue),
            "MoEGroupedGemmFwdOp: parameter layout must satisfy 'max_m >= 1', got masked{max_m: 0}");
  EXPECT_EQ(error_of(construct({{"layout", tight()}, {"activation", "relu"}}), ErrorKind::kValue),
            "MoEGroupedGemmFwdOp: parameter activation must be a GatedActivation (silu_and_mul | "
            "gelu_and_mul | gelu_tanh_and_mul | swigluoai), got relu");
  EXPECT_EQ(
      error_of(construct({{"layout", tight()}, {"out_dtype", DType::kF16}}), ErrorKind::kValue),
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
  EXPECT_THAT(error_of([&] { contents({3, 3, 8}); }, ErrorKind::kValue),
              ::testing::StartsWith("MoEGroupedGemmFwdOp: layout_metadata[1] is 3; the spec requires "));
  EXPECT_THAT(error_of([&] { contents({3, 6, 17}); }, ErrorKind::kValue),
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
    return error_of(
        [&] { signature.check_result({inputs, outs_}, facts_, results, held, "acme"); },
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
  EXPECT_EQ(result({fine}, {fine}),
            "MoEGroupedGemmFwdOp: out of acme shares storage with a tensor that the instance holds");
  outs_ = {tensor({4, 8})};
  check(signature);
  EXPECT_EQ(result({outs_[0]}), "no error");
  EXPECT_EQ(result({fine}), "MoEGroupedGemmFwdOp: out of acme is not the out that was given");
}

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
  CallFacts facts_;

  std::string error(ErrorKind kind, const Params& params = {}) {
    return error_of(
        [&] {
          const Signature signature(entry_, params, table_);
          const std::vector<Tensor> inputs = {x_, y_, state_, scale_};
          signature.check({inputs, {}}, facts_);
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
  EXPECT_EQ(error(ErrorKind::kShape),
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
  EXPECT_EQ(error(ErrorKind::kValue),
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
  EXPECT_EQ(error(ErrorKind::kType),
            "ToyScaleOp: state is given and scale is absent; the spec says that they come together");
  scale_ = tensor({2}, DType::kF32);
  EXPECT_EQ(error(ErrorKind::kType), "no error");
  EXPECT_EQ(facts_.effect_branch, "");
  EXPECT_EQ(facts_.outputs[1].shape, (Shape{24}));
}

TEST_F(Toy, MutationNamesItsBranch) {
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
  EXPECT_EQ(error(ErrorKind::kDType),
            "ToyScaleOp: table has dtype float16; the spec says float32");
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
    return error_of([&] { signature.check({inputs, {}}, facts); }, ErrorKind::kShape);
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

TEST(Registry, NamesTheNearestEntries) {
  EXPECT_THAT(error_of([] { spec::entry("MoEGroupedGemFwdOp"); }, ErrorKind::kValue),
              ::testing::StartsWith(
                  "there is no spec entry MoEGroupedGemFwdOp; nearest: MoEGroupedGemmFwdOp"));
}

TEST(Registry, LoadsAllOrNone) {
  EXPECT_THAT(load_spec_text(kToy, "toy.yaml"), ::testing::ElementsAre("ToyScaleOp"));
  EXPECT_THAT(error_of([] { load_spec_text(std::string(kToy) + "\n", "other.yaml"); },
                       ErrorKind::kSpec),
              ::testing::HasSubstr("ToyScaleOp is known already, from toy.yaml"));
  EXPECT_THAT(error_of([] { load_spec_text("A: {family: x}\n", "bad.yaml"); }, ErrorKind::kSpec),
              ::testing::StartsWith("bad.yaml:1: S107 A.signature: signature is missing"));
  EXPECT_EQ(find_entry("A"), nullptr);
  EXPECT_THAT(error_of([] { load_spec_file("/nowhere.yaml"); }, ErrorKind::kIo),
              ::testing::HasSubstr("/nowhere.yaml: cannot be read"));
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
