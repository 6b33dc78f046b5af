// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/expr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tileops/spec/kinds.h"

namespace tileops::spec {
namespace {

/// Evaluates over indices E = 8, N = 5 and S = [2, 3], parameters mode, layout and maybe.
class Language : public ::testing::Test {
 protected:
  Language() {
    const auto text = [](std::string_view name) {
      YamlNode node;
      node.kind = YamlNode::Kind::kScalar;
      node.scalar = name;
      return node;
    };
    Report report("test");
    const YamlNode file = read_yaml(
        "types: {Mode: {enum: [fast, exact]}, Layout: {tight: {}, masked: {max_m: int}}}", report);
    read_types(*file.find("types"), types_, report);
    EXPECT_TRUE(report.clean());
    for (const char* type : {"Mode", "Layout", "int | None", "list[int]"}) {
      param_types_.push_back(*read_type(text(type), types_, {}, report));
    }
    const char* names[] = {"mode", "layout", "maybe", "list"};
    for (int32_t i = 0; i < 4; ++i) {
      scope_.symbols[names[i]] = {ExprOp::kParam, i, kind_of(param_types_[static_cast<size_t>(i)])};
    }
    scope_.symbols["E"] = {ExprOp::kIndex, 0, {StaticKind::Base::kInt}};
    scope_.symbols["N"] = {ExprOp::kIndex, 1, {StaticKind::Base::kInt}};
    scope_.symbols["S"] = {ExprOp::kIndex, 2, {StaticKind::Base::kSeq}};
    scope_.symbols["unknown"] = {ExprOp::kIndex, 3, {StaticKind::Base::kInt}};
    indices_[0] = {IndexValue::Kind::kDim, DType::kF32, 8, {}};
    indices_[1] = {IndexValue::Kind::kDim, DType::kF32, 5, {}};
    indices_[2] = {IndexValue::Kind::kSeq, DType::kF32, 0, {2, 3}};
    values_ = {Value("fast"), Value(SumValue{"Layout", "masked", {{"max_m", 4}}}), Value(),
               Value(Value::List{1, 2, 3})};
    for (const Value& value : values_) params_.push_back(view_of(value));
  }

  std::string eval(std::string_view text) {
    try {
      Expr expr = parse_expr(text);
      check_kinds(expr.root, scope_, {});
      Env env{.params = params_, .indices = indices_.data()};
      return to_string(to_value(evaluate(expr.root, env)));
    } catch (const ExprFault& fault) {
      return std::string(fault.code) + ": " + fault.what();
    } catch (const EvalFailure& failure) {
      return std::string("failed: ") + failure.what();
    }
  }

  TypeTable types_;
  std::vector<TypeExpr> param_types_;
  Scope scope_;
  std::array<IndexValue, 4> indices_{};
  std::vector<Value> values_;
  std::vector<Val> params_;
};

TEST_F(Language, Arithmetic) {
  EXPECT_EQ(eval("2 + 3 * 4 - 1"), "13");
  EXPECT_EQ(eval("-7 // 2"), "-4");
  EXPECT_EQ(eval("-7 % 2"), "1");
  EXPECT_EQ(eval("7 / 2"), "3.5");
  EXPECT_EQ(eval("2 * E + N"), "21");
  EXPECT_EQ(eval("1e3 + 0.5"), "1000.5");
  EXPECT_EQ(eval("ceil_div(E, 3) + align_up(N, 4)"), "11");
  EXPECT_EQ(eval("min(E, N, 7) + max(1, 2) + abs(-3)"), "10");
  EXPECT_EQ(eval("itemsize(bfloat16)"), "2");
}

TEST_F(Language, Logic) {
  EXPECT_EQ(eval("1 < N <= 5 < E"), "true");
  EXPECT_EQ(eval("not N == 5 or E in (7, 8)"), "true");
  EXPECT_EQ(eval("E not in (7, 8) and true"), "false");
  EXPECT_EQ(eval("(E, N) == (8, 5)"), "true");
  EXPECT_EQ(eval("1 if mode == 'exact' else 2"), "2");
  EXPECT_EQ(eval("mode in ('fast', 'exact')"), "true");
}

TEST_F(Language, SequencesAndComprehensions) {
  EXPECT_EQ(eval("S[0] + S[-1] + len(S) + prod(S) + list[2]"), "16");
  EXPECT_EQ(eval("sum(i * j for i in range(3) for j in range(i, 3))"), "7");
  EXPECT_EQ(eval("all(i < N for i in range(5))"), "true");
  EXPECT_EQ(eval("any(S[i] == 3 for i in range(len(S)))"), "true");
  EXPECT_EQ(eval("max(list[i] for i in range(3)) - min(list[i] for i in range(3))"), "2");
  EXPECT_EQ(eval("max(i for i in range(0))"), "failed: max and min of nothing");
  EXPECT_EQ(eval("3 in list"), "true");
  EXPECT_EQ(eval("S[2]"), "failed: subscript is outside [0, 2)");
}

TEST_F(Language, SumTypesAreReadOnTheirBranch) {
  EXPECT_EQ(eval("layout == 'masked'"), "true");
  EXPECT_EQ(eval("layout.max_m if layout == 'masked' else 0"), "4");
  EXPECT_EQ(eval("layout != 'masked' or layout.max_m > 3"), "true");
  EXPECT_EQ(eval("layout.max_m if layout != 'tight' else 0"), "4");
  EXPECT_EQ(eval("layout.max_m"), "S404: layout may be tight here, which has no field 'max_m'");
  EXPECT_EQ(eval("layout == 'masekd'"), "S403: Layout has no constructor 'masekd'");
}

TEST_F(Language, NoneIsNarrowed) {
  EXPECT_EQ(eval("maybe if present(maybe) else 3"), "3");
  EXPECT_EQ(eval("maybe if maybe != None else 3"), "3");
  EXPECT_EQ(eval("maybe + 1"), "S403: arithmetic needs a number, not int | None");
  EXPECT_EQ(eval("present(E)"), "S403: E is always present");
}

TEST_F(Language, OverflowIsReported) {
  EXPECT_EQ(eval("9223372036854775807 + 1"), "failed: integer overflow");
  EXPECT_EQ(eval("4611686018427387904 * 2"), "failed: integer overflow");
  EXPECT_EQ(eval("-(-9223372036854775807 - 1)"), "failed: integer overflow");
  EXPECT_EQ(eval("(-9223372036854775807 - 1) // -1"), "failed: integer overflow");
  EXPECT_EQ(eval("9223372036854775808"), "S401: '9223372036854775808' is not a number");
  EXPECT_EQ(eval("align_up(9223372036854775807, 4)"), "failed: integer overflow");
  EXPECT_EQ(eval("1 // 0"), "failed: division by zero");
  EXPECT_EQ(eval("E % (N - 5)"), "failed: division by zero");
  EXPECT_EQ(eval("unknown"), "failed: unknown is not known here");
}

TEST_F(Language, IsClosed) {
  EXPECT_EQ(eval("open('x')"), "S402: there is no function 'open'");
  EXPECT_EQ(eval("x"), "S402: nothing is named 'x'");
  EXPECT_EQ(eval("E ** 2"), "S401: a value is missing before '*'");
  EXPECT_THAT(eval("E; N"), ::testing::StartsWith("S401: character 59 at 1"));
  EXPECT_EQ(eval("E +"), "S401: a value is missing at the end");
  EXPECT_EQ(eval("(E"), "S401: ')' is missing at the end");
  EXPECT_EQ(eval("'a"), "S401: a string is not closed");
  EXPECT_EQ(eval("E N"), "S401: 'N' is out of place");
  EXPECT_EQ(eval("sum(3)"), "S401: sum() takes a comprehension: sum(… for i in range(n))");
  EXPECT_EQ(eval("E if N else 2"), "S403: a truth value is needed, not an integer");
  EXPECT_EQ(eval("mode + 1"), "S403: arithmetic needs a number, not Mode");
  EXPECT_EQ(eval("mode == 'slow'"), "S403: 'slow' is not one of [fast, exact]");
  EXPECT_EQ(eval("valid_rows(E, layout, N)"), "S402: valid_rows() is for roofline formulas");
  EXPECT_EQ(eval("ceil_div(1)"), "S401: ceil_div() takes 2 arguments, not 1");
}

TEST_F(Language, DepthAndSizeAreCapped) {
  const auto repeat = [](std::string_view part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  EXPECT_EQ(eval(repeat("(", 60) + "1" + repeat(")", 60)), "S409: nested deeper than 64");
  EXPECT_EQ(eval(repeat("not ", 100) + "true"), "S409: nested deeper than 64");
  EXPECT_EQ(eval(repeat("-", 100) + "1"), "S409: nested deeper than 64");
  EXPECT_EQ(eval("1" + repeat("+1", 600)), "S409: more than 1024 nodes");
  EXPECT_EQ(eval(repeat("1 ", 3000)), "S409: longer than 4096 characters");
}

}  // namespace
}  // namespace tileops::spec
