// SPDX-License-Identifier: Apache-2.0
// A: an op class is described before any instance exists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"
#include "tileops/core/text_file.h"
#include "tileops/dispatch/kernel_registry.h"
#include "tileops/ops/register.h"
#include "tileops/spec/registry.h"
#include "tileops/spec/validator.h"
#include "tileops/spec/workload.h"

namespace tileops::contract {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

std::string spec_text() { return read_text(std::string(TILEOPS_TEST_DIR) + "/contract/ops.yaml"); }

/// The classes of these tests, known by name.
void declare_all() {
  register_ops();
  for (const OpClass* declared :
       {&ScaleOp::op_class(), &TwinOp::op_class(), &ShiftOp::op_class(), &ChainOp::op_class(),
        &NestOp::op_class(), &DeepOp::op_class(), &WidthOp::op_class(), &MixOp::op_class(),
        &EffectsOp::op_class(), &AliasOp::op_class(), &TableOp::op_class(), &CountOp::op_class(),
        &ProbeOp::op_class(), &RuleOp::op_class(), &FreeOp::op_class()}) {
    ASSERT_EQ(&op_class(declared->name()), declared);
  }
}

/// What the validator says of the tests' file after a change of its text.
std::vector<std::string> diagnostics(const std::string& from = "", const std::string& to = "") {
  declare_all();
  std::string text = spec_text();
  if (!from.empty()) {
    const size_t position = text.find(from);
    EXPECT_NE(position, std::string::npos) << from;
    text.replace(position, from.size(), to);
  }
  const spec::SpecText one{"ops.yaml", text};
  std::vector<std::string> lines;
  for (const spec::Diagnostic& diagnostic : spec::validate({&one, 1}, class_lookup())) {
    lines.push_back(diagnostic.code + " " + diagnostic.entry + ": " + diagnostic.message);
  }
  return lines;
}

TEST(ContractA, Contract_A1_a_class_is_described_before_any_instance_exists) {
  reset_counts();
  const OpClass& chain = ChainOp::op_class();
  EXPECT_EQ(chain.name(), "TestChainFwdOp");
  ASSERT_EQ(chain.delegate_types().size(), 2u);
  EXPECT_EQ(chain.delegate_types()[0].stage, "first");
  EXPECT_EQ(chain.delegate_types()[0].op_class, &ScaleOp::op_class());
  EXPECT_THAT(chain.injected(), ElementsAre("first_op", "second_op"));
  EXPECT_TRUE(chain.interfaces().empty());
  EXPECT_TRUE(chain.kernel_types().empty());
  const OpClass& scale = ScaleOp::op_class();
  ASSERT_EQ(scale.interfaces().size(), 1u);
  EXPECT_EQ(scale.interfaces()[0].name, "scale");
  EXPECT_THAT(scale.kernel_types(),
              ElementsAre(Pair("scale_plain", "scale"), Pair("scale_fours", "scale"),
                          Pair("scale_far", "scale")));
  EXPECT_EQ(count_of(Point::kConstruct, ""), 0) << "reading a class constructed an instance";
}

TEST(ContractA, Contract_A1_a_class_is_declared_once_and_found_by_name) {
  EXPECT_EQ(&ChainOp::op_class(), &ChainOp::op_class());
  EXPECT_EQ(find_op_class("TestChainFwdOp"), &ChainOp::op_class());
  EXPECT_EQ(find_op_class("NoSuchOp"), nullptr);
  EXPECT_THAT(error_of([] { op_class("NoSuchOp"); }),
              HasSubstr("ValueError: no op is named NoSuchOp"));
  EXPECT_EQ(error_of([] { OpClass::declare({.name = "TestScaleFwdOp"}); }).substr(0, 26),
            "ValueError: TestScaleFwdOp");
}

TEST(ContractA, Contract_A1_a_class_that_a_library_declares_again_is_the_class_that_is_there) {
  EXPECT_EQ(&OpClass::declare({.name = "TestScaleFwdOp", .type = &typeid(ScaleOp)}),
            &ScaleOp::op_class());
  EXPECT_EQ(kind_of([] { OpClass::declare({.name = "TestScaleFwdOp", .type = &typeid(ChainOp)}); }),
            ErrorKind::kValue);
}

TEST(ContractA, Contract_A1_an_instance_is_made_by_name_from_parameters) {
  const std::shared_ptr<Op> made = op_class(ScaleOp::op_class().name()).make({{"factor", 3.0}});
  EXPECT_EQ(values_of(ScaleOp::invoke(*made, iota(1, 2))), (std::vector<double>{3, 6}));
  EXPECT_THAT(error_of([] {
                ScaleOp::op_class().make({{"factor", "three"}});
              }),
              HasSubstr("TestScaleFwdOp: parameter factor"));
}

TEST(ContractA, Contract_A1_an_instance_made_by_name_takes_what_is_injected) {
  const std::shared_ptr<Op> first = std::make_shared<ScaleOp>(5);
  Injected injected;
  injected.set("first_op", first);
  const std::shared_ptr<Op> made = ChainOp::op_class().make({{"factor", 3.0}}, {}, injected);
  EXPECT_EQ(made->held_delegates()[0].op, first);
  EXPECT_EQ(values_of(ChainOp::invoke(*made, iota(1, 2))), (std::vector<double>{15, 30}));
  Injected unknown;
  unknown.set("third_op", first);
  EXPECT_EQ(error_of([&] { ChainOp::op_class().make({}, {}, unknown); }),
            "TypeError: TestChainFwdOp: no instance can be injected as third_op; declared: "
            "first_op, second_op");
  Injected of_another_type;
  of_another_type.set("first_op", 3);
  EXPECT_THAT(error_of([&] { ChainOp::op_class().make({}, {}, of_another_type); }),
              HasSubstr("TypeError: what is injected as first_op is of another type"));
}

TEST(ContractA, Contract_A2_delegate_types_are_in_the_order_of_the_composition) {
  declare_all();
  for (const std::string& name : op_class_names()) {
    const OpClass& declared = op_class(name);
    std::vector<std::string> delegates, kernels;
    for (const spec::Stage& stage : declared.entry()->composition()) {
      (stage.op.empty() ? kernels : delegates)
          .push_back(stage.name + "=" + stage.op + stage.kernel);
    }
    ASSERT_EQ(delegates.size(), declared.delegate_types().size()) << name;
    for (size_t i = 0; i < delegates.size(); ++i) {
      const StageType& type = declared.delegate_types()[i];
      EXPECT_EQ(delegates[i], type.stage + "=" + type.op_class->name()) << name;
    }
    if (declared.is_composite()) {
      EXPECT_EQ(kernels.size(), declared.kernel_types().size()) << name;
    }
  }
}

TEST(ContractA, Contract_A3_the_validator_accepts_classes_that_agree_with_their_entries) {
  EXPECT_THAT(diagnostics(), IsEmpty());
}

struct Broken {
  const char* name;
  const char* from;
  const char* to;
  const char* says;
};

class ContractA3 : public ::testing::TestWithParam<Broken> {};

TEST_P(ContractA3, Contract_A3_each_malformed_stage_is_its_own_message) {
  const auto lines = diagnostics(GetParam().from, GetParam().to);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines, Contains(HasSubstr(GetParam().says)));
}

constexpr const char* kChainStages =
    "    - {name: first, op: TestScaleFwdOp}\n    - {name: second, op: TestScaleFwdOp}\n";

INSTANTIATE_TEST_SUITE_P(
    Stages, ContractA3,
    ::testing::Values(
        Broken{"missing", kChainStages, "    - {name: first, op: TestScaleFwdOp}\n", "second"},
        Broken{"extra", kChainStages,
               "    - {name: first, op: TestScaleFwdOp}\n    - {name: second, op: TestScaleFwdOp}\n"
               "    - {name: third, op: TestScaleFwdOp}\n",
               "third"},
        Broken{"renamed", kChainStages,
               "    - {name: first, op: TestScaleFwdOp}\n    - {name: other, op: TestScaleFwdOp}\n",
               "other"},
        Broken{
            "reordered", kChainStages,
            "    - {name: second, op: TestScaleFwdOp}\n    - {name: first, op: TestScaleFwdOp}\n",
            "stage second comes here; the class has first"},
        Broken{
            "another_class", kChainStages,
            "    - {name: first, op: TestShiftFwdOp}\n    - {name: second, op: TestScaleFwdOp}\n",
            "TestShiftFwdOp"},
        Broken{"empty", kChainStages, "    []\n", "not empty"},
        Broken{"twice", kChainStages,
               "    - {name: first, op: TestScaleFwdOp}\n    - {name: first, op: TestScaleFwdOp}\n",
               "two stages are named first"},
        Broken{"optional_no_boolean", kChainStages,
               "    - {name: first, op: TestScaleFwdOp, optional: 3}\n"
               "    - {name: second, op: TestScaleFwdOp}\n",
               "optional"},
        Broken{"op_and_kernel", kChainStages,
               "    - {name: first, op: TestScaleFwdOp, kernel: k}\n"
               "    - {name: second, op: TestScaleFwdOp}\n",
               "exactly one"},
        Broken{"neither", kChainStages,
               "    - {name: first}\n    - {name: second, op: TestScaleFwdOp}\n", "exactly one"},
        Broken{"unknown_entry", kChainStages,
               "    - {name: first, op: NoSuchFwdOp}\n    - {name: second, op: TestScaleFwdOp}\n",
               "NoSuchFwdOp"},
        Broken{"unknown_key", kChainStages,
               "    - {name: first, op: TestScaleFwdOp, colour: red}\n"
               "    - {name: second, op: TestScaleFwdOp}\n",
               "colour"},
        Broken{"another_kernel", "kernel: mix_plain", "kernel: mix_other", "mix_other"}),
    [](const auto& info) { return info.param.name; });

TEST(ContractA, Contract_A3_the_messages_differ_from_each_other) {
  std::vector<std::string> codes;
  for (const char* stages :
       {"    - {name: first, op: TestScaleFwdOp}\n",
        "    - {name: second, op: TestScaleFwdOp}\n    - {name: first, op: TestScaleFwdOp}\n",
        "    - {name: first, op: TestShiftFwdOp}\n    - {name: second, op: TestScaleFwdOp}\n",
        "    - {name: first, op: TestScaleFwdOp}\n    - {name: second, op: TestScaleFwdOp}\n"
        "    - {name: third, op: TestScaleFwdOp}\n"}) {
    for (const std::string& line : diagnostics(kChainStages, stages))
      codes.push_back(line.substr(0, 4));
  }
  std::sort(codes.begin(), codes.end());
  EXPECT_EQ(std::unique(codes.begin(), codes.end()), codes.end())
      << ::testing::PrintToString(codes);
}

TEST(ContractA, Contract_A3_a_compile_boundary_is_call_time_inputs_and_no_composition) {
  EXPECT_TRUE(spec::entry("TestScaleFwdOp")->has_compile_boundary());
  EXPECT_FALSE(spec::entry("TestChainFwdOp")->has_compile_boundary());
  EXPECT_FALSE(spec::entry("TestTableFwdOp")->has_compile_boundary());
}

TEST(ContractA, Contract_A3_each_workload_row_of_an_implemented_entry_makes_a_call_that_completes) {
  declare_all();
  int num_rows = 0;
  for (const std::string& name : op_class_names()) {
    const auto entry = spec::entry(name);
    if (!name.starts_with("Test") || !entry->construction_tensors().empty()) continue;
    for (const spec::WorkloadCase& row : spec::workload_cases(*entry)) {
      const std::shared_ptr<Op> op = op_class(name).make(row.params);
      const std::vector<Tensor> inputs = spec::make_inputs(entry, row, 1);
      EXPECT_EQ(error_of([&] { op->call({inputs, {}}); }), "no error") << name << " " << row.id;
      EXPECT_EQ(op->last_call()->op(), name);
      ++num_rows;
    }
  }
  EXPECT_GE(num_rows, 14);
}

TEST(ContractA, Contract_A4_an_undeclared_stage_is_an_error_that_lists_the_declared_ones) {
  const FreeOp op;
  EXPECT_EQ(error_of([&] { op.hold("d", settled); }),
            "RuntimeError: TestFreeFwdOp: no stage d; declared: a, b, c");
  EXPECT_EQ(error_of([] { ScaleOp::op_class().stage_index("x"); }),
            "RuntimeError: TestScaleFwdOp: no stage x; declared: none");
}

}  // namespace
}  // namespace tileops::contract
