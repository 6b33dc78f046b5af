// SPDX-License-Identifier: Apache-2.0
#include "tileops/spec/validator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "tileops/core/embedded.h"
#include "tileops/core/text_file.h"
#include "tileops/spec/broken_entries_testing.h"
#include "tileops/spec/report.h"

namespace tileops::spec {
namespace {

std::vector<Diagnostic> validate_one(const std::string& text, const ClassLookup& classes = {}) {
  const SpecText one{"test.yaml", text};
  return validate({&one, 1}, classes);
}

std::string all_text(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const Diagnostic& each : diagnostics) text += to_string(each) + "\n";
  return text;
}

std::set<std::string> codes_of(const std::vector<Diagnostic>& diagnostics) {
  std::set<std::string> codes;
  for (const Diagnostic& each : diagnostics) codes.insert(each.code);
  return codes;
}

TEST(Validator, OurEntriesAreClean) {
  std::vector<SpecText> texts;
  for (const EmbeddedFile& file : embedded::spec_files()) {
    texts.push_back({std::string(file.path), std::string(file.text)});
  }
  EXPECT_EQ(all_text(validate(texts, {})), "");
}

TEST(Validator, TheWholeEntryOfTheBrokenOnesIsClean) {
  EXPECT_EQ(all_text(validate_one(kWholeEntry)), "");
}

TEST(Validator, TwoFilesCannotDeclareOneEntry) {
  const SpecText texts[] = {{"a.yaml", kWholeEntry}, {"b.yaml", kWholeEntry}};
  const auto diagnostics = validate(texts, {});
  EXPECT_EQ(all_text(diagnostics), "b.yaml:8: S109 Whole: Whole is declared in a.yaml too\n");
}

class BrokenEntry : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenEntry, Contract_A3_GivesItsOwnCode) {
  const auto diagnostics = validate_one(broken_text(GetParam()));
  EXPECT_TRUE(codes_of(diagnostics).contains(std::string(GetParam().code)))
      << "got:\n"
      << all_text(diagnostics) << "of:\n"
      << broken_text(GetParam());
  for (const Diagnostic& each : diagnostics)
    EXPECT_EQ(to_string(each).find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Each, BrokenEntry, ::testing::ValuesIn(broken_entries()),
                         [](const auto& info) {
                           return std::string(info.param.code) + "_" + std::string(info.param.name);
                         });

TEST(Validator, FortyBrokenEntriesHaveFortyCodes) {
  std::set<std::string_view> codes;
  for (const Broken& each : broken_entries()) codes.insert(each.code);
  EXPECT_GE(codes.size(), 40u);
}

TEST(Validator, EveryCodeIsTriedAndKnown) {
  std::set<std::string_view> tried;
  for (const Broken& each : broken_entries()) tried.insert(each.code);
  tried.insert("S109");  // of two files
  for (const char* of_classes :
       {"S808", "S809", "S810", "S811", "S812", "S814", "S815", "S817", "S818"}) {
    tried.insert(of_classes);  // Contract_A2 below
  }
  std::set<std::string_view> known;
  for (const CodeInfo& info : diagnostic_codes()) known.insert(info.code);
  EXPECT_EQ(tried, known);
}

/// Codes as the sources write them: "S" and three digits in quotes.
std::set<std::string> codes_in(const std::string& text, char before, char after) {
  std::set<std::string> codes;
  for (size_t at = text.find('S'); at != std::string::npos; at = text.find('S', at + 1)) {
    const std::string code = text.substr(at, 4);
    const bool digits = code.size() == 4 && code.find_first_not_of("0123456789", 1) == code.npos;
    if (digits && at > 0 && text[at - 1] == before && text[at + 4] == after) codes.insert(code);
  }
  return codes;
}

TEST(Validator, EveryCodeOfTheSourcesIsInTheTableAndInTheDocs) {
  const std::filesystem::path root = TILEOPS_SOURCE_DIR;
  std::set<std::string> used;
  for (const auto& file : std::filesystem::directory_iterator(root / "tileops/spec")) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with(".cc") || name.ends_with("_test.cc") || name == "diagnostic_codes.cc")
      continue;
    used.merge(codes_in(read_text(file.path().string()), '"', '"'));
  }
  std::set<std::string> table;
  for (const CodeInfo& info : diagnostic_codes()) table.insert(std::string(info.code));
  EXPECT_EQ(used, table);
  const std::string docs = read_text((root / "docs/spec.md").string());
  for (const CodeInfo& info : diagnostic_codes()) {
    const std::string line =
        "| " + std::string(info.code) + " | " + std::string(info.meaning) + " |";
    EXPECT_NE(docs.find(line), std::string::npos) << "docs/spec.md lacks: " << line;
  }
}

TEST(Validator, DiagnosticsAreSortedAndSaidFieldByField) {
  const auto diagnostics = validate_one(R"(B:
  family: toy
  colour: red
  signature:
    forall: {M: Dimm}
    inputs: {x: {dtype: float31, shape: "[M"}}
    outputs: {y: {dtype: float32, shape: "[1]"}}
  roofline: {flops: "nothing"}
  workloads: [{label: a}]
)");
  EXPECT_EQ(all_text(diagnostics),
            "test.yaml:3: S106 B.colour: there is no field 'colour'; here stand: family, status, "
            "summary, ref_api, signature, generators, workloads, roofline, composition\n"
            "test.yaml:5: S301 B.signature.forall.M: 'Dimm' is no kind: Dim, Shape, DType[...] or "
            "Seq[Int]\n"
            "test.yaml:6: S302 B.signature.inputs.x.shape: '[M' is no shape: [E, 2 * N, *S]\n"
            "test.yaml:6: S402 B.signature.inputs.x.dtype: 'float31': nothing is named 'float31'\n"
            "test.yaml:8: S402 B.roofline.flops: 'nothing': nothing is named 'nothing'\n");
}

/// Codes of the whole entry held against a class.
std::set<std::string> against(const std::function<void(ClassFacts&)>& change) {
  ClassFacts facts{"Whole",
                   {{"first", "MoEGroupedGemmFwdOp"}, {"second", "MoEExpertMLPFwdOp"}},
                   {"kernel_a"},
                   {"mode", "groups", "layers", "workspace"},
                   {}};
  change(facts);
  return codes_of(validate_one(kWholeEntry, [&](std::string_view name) -> const ClassFacts* {
    return name == facts.name ? &facts : nullptr;
  }));
}

TEST(Validator, Contract_A2_TheClassAgreesWithTheComposition) {
  using Codes = std::set<std::string>;
  EXPECT_EQ(against([](ClassFacts&) {}), Codes{});
  EXPECT_EQ(against([](ClassFacts& facts) { facts.delegates.pop_back(); }), Codes{"S808"});
  EXPECT_EQ(against([](ClassFacts& facts) {
              facts.delegates.push_back({"third", "X"});
            }),
            Codes{"S809"});
  EXPECT_EQ(against([](ClassFacts& facts) { std::swap(facts.delegates[0], facts.delegates[1]); }),
            Codes{"S810"});
  EXPECT_EQ(against([](ClassFacts& facts) { facts.delegates[0].second = "Other"; }), Codes{"S811"});
  EXPECT_EQ(against([](ClassFacts& facts) { facts.kernel_keys = {"kernel_b"}; }), Codes{"S812"});
  EXPECT_EQ(against([](ClassFacts& facts) { facts.params.pop_back(); }), Codes{"S814"});
  EXPECT_EQ(against([](ClassFacts& facts) { facts.name = "Another"; }), Codes{"S815"});
  EXPECT_EQ(against([](ClassFacts& facts) { facts.delegates[1].first = "zweite"; }), Codes{"S817"});
  EXPECT_EQ(against([](ClassFacts& facts) { facts.injected = {"mode"}; }), Codes{"S818"});
}

}  // namespace
}  // namespace tileops::spec
