// SPDX-License-Identifier: Apache-2.0
// G5 for implementations from another language: names and tensors instead of an interface's types.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "contract/contract_ops.h"
#include "support/testing.h"
#include "tileops/core/error_testing.h"
#include "tileops/op/op_class.h"
#include "tileops/ops/moe/permute_align/permute_align_op.h"
#include "tileops/ops/register.h"

namespace tileops::contract {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kOp = "MoEPermuteAlignFwdOp";

/// Fills every output with one value.
class Fill final : public ForeignKernel {
 public:
  explicit Fill(int32_t value) : value_(value) {}
  void run(std::span<const Tensor> tensors) const override {
    for (const Tensor& output : tensors.subspan(1)) {
      std::fill_n(output.data_as<int32_t>(), output.num_elements(), value_);
    }
  }

 private:
  int32_t value_;
};

/// Fills with the call's block size; serves an even number of tokens.
ForeignImplementation blocks(std::vector<Params>& built) {
  return {
      .info = {.key = "blocks",
               .devices = {DeviceType::kCPU},
               .preferred_over = {"cpu_counting_sort"}},
      .refusal = [](const Params& call) -> Refusal {
        if (*call.at("num_tokens").as_int() % 2 == 0) return std::nullopt;
        return "T must be even";
      },
      .identity = [](const Params& call) { return call.at("block_size"); },
      .build =
          [&built](const Params& call, const BuildOptions&) {
            built.push_back(call);
            return std::make_shared<Fill>(static_cast<int32_t>(*call.at("block_size").as_int()));
          }};
}

class ContractGForeign : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {  // classes are known from their first use on
    register_ops();
    ScaleOp::op_class();
    TwinOp::op_class();
  }
};

class Registered {
 public:
  explicit Registered(ForeignImplementation implementation) : key_(implementation.info.key) {
    register_foreign_kernel_type(kOp, "", std::move(implementation));
  }
  ~Registered() { unregister_kernel_type(kOp, key_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  std::string key_;
};

Tensor ids(int64_t num_tokens) {
  return testing::int_tensor({{num_tokens, 1}},
                             std::vector<int64_t>(static_cast<size_t>(num_tokens), 1));
}

std::string served_by(const Op& op) { return op.last_call()->kernels()[0].entry->implementation; }

TEST_F(ContractGForeign, Contract_G5_a_foreign_implementation_competes_in_names_and_tensors) {
  std::vector<Params> built;
  const Registered registered(blocks(built));
  const MoEPermuteAlignFwdOp op(3, 4);
  const auto even = op(ids(2));
  EXPECT_EQ(served_by(op), "blocks");
  for (const Tensor& output :
       {even.sorted_route_ids, even.block_expert_ids, even.num_padded_rows}) {
    for (double value : testing::elements(output)) EXPECT_EQ(value, 4);
  }
  op(ids(6));
  EXPECT_EQ(served_by(op), "blocks");
  op(ids(3));
  EXPECT_EQ(served_by(op), "cpu_counting_sort") << "by its refusal";
  ASSERT_EQ(built.size(), 1U) << "one identity";
  EXPECT_EQ(to_string(built[0]), "num_experts=3, block_size=4, device=cpu, num_tokens=2, top_k=1");
  EXPECT_EQ(op.built_entries("permute_align")[0].identity, Value(4));
  EXPECT_THAT(op.explain().text(), HasSubstr("blocks: T must be even"));
}

TEST_F(ContractGForeign, Contract_G5_what_a_foreign_implementation_throws_reaches_the_caller) {
  std::vector<Params> built;
  ForeignImplementation faulty = blocks(built);
  faulty.build = [](const Params&, const BuildOptions&) -> std::shared_ptr<ForeignKernel> {
    throw std::out_of_range("not now");
  };
  const Registered registered(faulty);
  const MoEPermuteAlignFwdOp op(3, 4);
  EXPECT_THROW(op(ids(2)), std::out_of_range);
  EXPECT_FALSE(op.serving_target().has_value()) << "the failed call settled nothing";
  op(ids(3));
}

TEST_F(ContractGForeign, Contract_G5_a_foreign_registration_that_fits_nothing_is_refused) {
  std::vector<Params> built;
  const auto refused = [&](std::string_view op, std::string_view interface) {
    return error_of([&] { register_foreign_kernel_type(op, interface, blocks(built)); });
  };
  EXPECT_THAT(refused("NoSuchOp", ""), HasSubstr("ValueError: no op is named NoSuchOp"));
  EXPECT_THAT(refused("TestTwinFwdOp", ""),
              HasSubstr("TestTwinFwdOp: it has no kernel interface that blocks could implement"));
  EXPECT_THAT(refused("TestScaleFwdOp", ""),
              HasSubstr("TestScaleFwdOp: the interface scale is C++'s alone"));
  EXPECT_THAT(refused(kOp, "none_such"),
              HasSubstr("blocks implements none_such, which the op does not declare; it declares "
                        "permute_align"));
  const Registered registered(blocks(built));
  EXPECT_THAT(refused(kOp, "permute_align"), HasSubstr("the key blocks is taken"));
}

TEST_F(ContractGForeign, Contract_G5_every_leaf_of_the_library_is_open_to_other_languages) {
  int num_interfaces = 0;
  for (const std::string& name : op_class_names()) {
    if (name.starts_with("Test")) continue;
    for (const InterfaceType& interface : op_class(name).interfaces()) {
      EXPECT_NE(interface.adapt, nullptr) << name << ", " << interface.name;
      ++num_interfaces;
    }
  }
  EXPECT_EQ(num_interfaces, 7);
}

}  // namespace
}  // namespace tileops::contract
