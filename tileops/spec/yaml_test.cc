// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tileops/core/error.h"
#include "tileops/spec/broken_entries_testing.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/types.h"
#include "tileops/spec/yaml_tree.h"

namespace tileops::spec {
namespace {

std::string faults_of(std::string_view text) {
  Report report("test.yaml");
  read_yaml(text, report);
  std::string faults;
  for (const Diagnostic& each : report.sorted()) faults += to_string(each) + "\n";
  return faults;
}

TEST(Yaml, KeepsLinesOrderAndQuotes) {
  Report report("test.yaml");
  const YamlNode node = read_yaml("a: 1\nb:\n- x\n- 'None'\n- None\n- ~\n", report);
  ASSERT_TRUE(report.clean());
  ASSERT_EQ(node.members.size(), 2u);
  EXPECT_EQ(node.members[0].first, "a");
  EXPECT_EQ(node.key_lines[1], 2);
  const YamlNode& list = *node.find("b");
  EXPECT_EQ(list.items[0].line, 3);
  EXPECT_TRUE(list.items[1].quoted);
  EXPECT_FALSE(list.items[2].quoted);
  EXPECT_EQ(list.items[3].kind, YamlNode::Kind::kNull);
}

TEST(Yaml, RefusesWhatCouldExplode) {
  EXPECT_THAT(faults_of("a: &a [x]\nb: [*a, *a]\n"), ::testing::HasSubstr("S103"));
  EXPECT_THAT(faults_of("a: &a [*a]\n"), ::testing::HasSubstr("S103"));
  EXPECT_THAT(faults_of(repeat("[", 100'000)), ::testing::HasSubstr("S10"));
  EXPECT_THAT(faults_of(repeat("{a: ", 10'000)), ::testing::HasSubstr("S10"));
  EXPECT_THAT(faults_of("[" + repeat("a,", 200'001) + "]"), ::testing::HasSubstr("S102"));
  EXPECT_THAT(faults_of(std::string(kMaxYamlBytes + 1, ' ')), ::testing::HasSubstr("S102"));
  EXPECT_THAT(faults_of("? [a]\n: b\n"), ::testing::HasSubstr("S101"));
  EXPECT_THAT(faults_of("a: b: c\n"), ::testing::HasSubstr("test.yaml:1: S101"));
  EXPECT_EQ(faults_of(""), "");
}

TEST(Types, ReadsValuesByTheirType) {
  Report report("test.yaml");
  const YamlNode file = read_yaml(
      "types: {Layer: {flat: {}, deep: {levels: {type: int, default: 2}, scale: float}}}\n"
      "value: {deep: {scale: 1}}\nlist: [1, 2]\nnone: None\nwrong: {deep: {sclae: 1}}\n",
      report);
  TypeTable types;
  read_types(*file.find("types"), types, report);
  ASSERT_TRUE(report.clean());
  YamlNode text;
  text.kind = YamlNode::Kind::kScalar;
  const auto type = [&](std::string_view name) {
    text.scalar = name;
    return *read_type(text, types, {}, report);
  };
  EXPECT_EQ(to_string(value_from_yaml(*file.find("value"), type("Layer"))),
            "deep{levels: 2, scale: 1.0}");
  EXPECT_EQ(to_string(value_from_yaml(*file.find("list"), type("list[int]"))), "[1, 2]");
  EXPECT_EQ(to_string(value_from_yaml(*file.find("none"), type("Layer | None"))), "None");
  EXPECT_THROW(value_from_yaml(*file.find("wrong"), type("Layer")), ExprFault);
  EXPECT_THROW(value_from_yaml(*file.find("none"), type("int")), ExprFault);
  EXPECT_EQ(dtype_union_text(type("float16 | bfloat16 | None").dtypes), "float16 | bfloat16");
}

}  // namespace
}  // namespace tileops::spec
