// SPDX-License-Identifier: Apache-2.0
#include "tileops/core/value.h"

#include <gtest/gtest.h>

#include <limits>
#include <unordered_set>

#include "tileops/core/error_testing.h"

namespace tileops {
namespace {

SumValue masked(int64_t max_m) { return {"MGroupedLayout", "masked", {{"max_m", max_m}}}; }

/// One of each kind, and near misses: all differ.
std::vector<Value> distinct_values() {
  return {Value(),
          false,
          true,
          0,
          1,
          int64_t{1} << 40,
          0.5,
          1.0,
          std::numeric_limits<double>::quiet_NaN(),
          DType::kBF16,
          DType::kF16,
          "",
          "bfloat16",
          "1",
          Value::List{},
          Value::List{1},
          Value::List{1, 2},
          Value::List{2, 1},
          Value::List{Value::List{1}},
          SumValue{"MGroupedLayout", "masked", {}},
          masked(128),
          masked(129),
          SumValue{"Other", "masked", {{"max_m", 128}}},
          SumValue{"MGroupedLayout", "contiguous", {}}};
}

TEST(Value, EqualityIsDeepAndByKind) {
  const auto values = distinct_values();
  const auto copies = distinct_values();
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = 0; j < values.size(); ++j) {
      EXPECT_EQ(values[i] == copies[j], i == j) << to_string(values[i]) << " " << i << " " << j;
    }
  }
}

TEST(Value, HashFollowsEquality) {
  const auto values = distinct_values();
  const auto copies = distinct_values();
  std::unordered_set<size_t> hashes;
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i].hash(), copies[i].hash());
    hashes.insert(std::hash<Value>{}(values[i]));
  }
  EXPECT_EQ(hashes.size(), values.size());
  EXPECT_EQ(Value(0.0), Value(-0.0));
  EXPECT_EQ(Value(0.0).hash(), Value(-0.0).hash());
}

TEST(Value, IsWrittenAsTheSpecWritesIt) {
  EXPECT_EQ(to_string(Value()), "None");
  EXPECT_EQ(to_string(Value(true)), "true");
  EXPECT_EQ(to_string(Value(-3)), "-3");
  EXPECT_EQ(to_string(Value(0.5)), "0.5");
  EXPECT_EQ(to_string(Value(2.0)), "2.0");
  EXPECT_EQ(to_string(Value(-1e300)), "-1e+300");
  EXPECT_EQ(to_string(Value(DType::kBF16)), "bfloat16");
  EXPECT_EQ(to_string(Value("silu_and_mul")), "silu_and_mul");
  EXPECT_EQ(to_string(Value(Value::List{})), "[]");
  EXPECT_EQ(to_string(Value(Value::List{1, Value::List{2}, "x"})), "[1, [2], x]");
  EXPECT_EQ(to_string(Value(SumValue{"Layout", "contiguous", {}})), "contiguous");
  EXPECT_EQ(to_string(Value(masked(128))), "masked{max_m: 128}");
  EXPECT_EQ(to_string(Value(SumValue{"T", "c", {{"a", 1}, {"b", Value()}}})), "c{a: 1, b: None}");
}

TEST(Value, GivesTheHeldAlternativeAlone) {
  const Value value(masked(7));
  EXPECT_EQ(value.as_int(), nullptr);
  EXPECT_EQ(value.as_list(), nullptr);
  ASSERT_NE(value.as_sum(), nullptr);
  EXPECT_EQ(*value.as_sum()->field("max_m")->as_int(), 7);
  EXPECT_EQ(value.as_sum()->field("min_m"), nullptr);
  EXPECT_TRUE(Value().is_none());
  EXPECT_EQ(*Value(std::string_view("ab")).as_string(), "ab");
}

TEST(Params, KeepTheirOrderAndReplaceInPlace) {
  Params params{{"layout", masked(128)}, {"activation", "silu_and_mul"}};
  EXPECT_EQ(to_string(params), "layout=masked{max_m: 128}, activation=silu_and_mul");
  params.set("layout", 1);
  params.set("bias", Value());
  EXPECT_EQ(to_string(params), "layout=1, activation=silu_and_mul, bias=None");
  EXPECT_EQ(params.size(), 3u);
  EXPECT_EQ(params.find("none"), nullptr);
  EXPECT_EQ(*params.at("layout").as_int(), 1);
}

TEST(Params, AMissingOneIsNamedWithThoseThere) {
  EXPECT_EQ(error_of([] {
              Params({{"a", 1}, {"b", 2}}).at("c");
            }),
            "ValueError: there is no parameter 'c'; there are: a, b");
  EXPECT_EQ(error_of([] { Params().at("c"); }),
            "ValueError: there is no parameter 'c'; there are: none");
}

}  // namespace
}  // namespace tileops
