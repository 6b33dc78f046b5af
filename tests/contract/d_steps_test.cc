// SPDX-License-Identifier: Apache-2.0
// D1: the seven steps of a call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"
#include "tileops/dispatch/target.h"

namespace tileops::contract {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// D1 ------------------------------------------------------------------------------------------

TEST(ContractD, Contract_D1_the_call_is_checked_before_a_target_is_selected) {
  const TargetGuard target("watcher");
  int asked = 0;
  register_target_detector("watcher", [&](Device) { return ++asked < 0; });
  const ScaleOp op;
  EXPECT_THAT(error_of([&] { op(iota(2, 3).select(0, 0)); }),
              HasSubstr("TestScaleFwdOp: x has shape [3]"));
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(op.serving_target(), std::nullopt);
  op(iota(2, 3));
  EXPECT_EQ(asked, 1);
  op(iota(2, 3));
  EXPECT_EQ(asked, 1) << "selected once";
}

TEST(ContractD, Contract_D1_an_out_that_overlaps_an_input_is_an_error) {
  const ScaleOp op;
  const Tensor x = iota(2, 3);
  EXPECT_THAT(error_of([&] { op(x, x); }), HasSubstr("ValueError: TestScaleFwdOp: out overlaps x"));
  const Tensor wide = iota(4, 3);
  EXPECT_THAT(error_of([&] { op(wide.narrow(0, 0, 3), wide.narrow(0, 1, 3)); }),
              HasSubstr("out overlaps x"));
  EXPECT_NO_THROW(op(wide.narrow(0, 0, 2), wide.narrow(0, 2, 2)));
}

TEST(ContractD, Contract_D1_an_out_on_another_device_is_an_error) {
  const ScaleOp op;
  const Tensor x = iota(2, 3);
  EXPECT_EQ(kind_of([&] { op(x, on_meta(x)); }), ErrorKind::kDevice);
}

TEST(ContractD, Contract_D1_a_call_that_writes_no_element_runs_nothing_and_is_recorded) {
  reset_counts();
  const ChainOp chain(2, "t");
  const Tensor y = chain(Tensor::empty({0, 3}, DType::kF32));
  EXPECT_EQ(y.shape(), (Shape{0, 3}));
  EXPECT_EQ(count_of(Point::kForward, "t"), 0);
  EXPECT_EQ(chain.serving_target(), std::nullopt);
  const RecordPtr record = chain.last_call();
  EXPECT_EQ(record->index("M"), 0);
  EXPECT_EQ(record->served_by(), "");
  EXPECT_THAT(record->stages("first"), IsEmpty());
  EXPECT_THAT(record->stages("second"), IsEmpty());
}

TEST(ContractD, Contract_D1_a_call_that_writes_no_element_returns_the_given_out) {
  const ScaleOp op;
  const Tensor out = Tensor::empty({0, 3}, DType::kF32);
  EXPECT_TRUE(op(Tensor::empty({0, 3}, DType::kF32), out).is_same_view(out));
}

TEST(ContractD, Contract_D1_a_named_target_must_exist_even_where_nothing_runs) {
  const ScaleOp op(2, "t", {.target = "nowhere"});
  EXPECT_THAT(error_of([&] {
                op(Tensor::empty({0, 3}, DType::kF32));
              }),
              HasSubstr("ValueError: TestScaleFwdOp: target nowhere is not known; known: builtin"));
}

TEST(ContractD, Contract_D1_a_call_that_writes_no_tensor_runs) {
  reset_counts();
  const ProbeOp op(false);
  EXPECT_FALSE(op(Tensor::empty({0, 3}, DType::kF32))[0].defined());
  EXPECT_EQ(count_of(Point::kForward, "probe"), 1) << "it writes nothing, so it runs";
  const ProbeOp writer(true);
  writer(Tensor::empty({0, 3}, DType::kF32));
  EXPECT_EQ(count_of(Point::kForward, "probe"), 1) << "what it writes has no elements";
  writer(Tensor::empty({2, 0}, DType::kF32));
  EXPECT_EQ(count_of(Point::kForward, "probe"), 2) << "the sums of empty rows are written";
}

struct WrongResult {
  const char* name;
  std::function<Tensor(const Tensor& x, const Tensor& out)> result;
  const char* says;
  bool with_out = false;
};

class ContractD1Result : public ::testing::TestWithParam<WrongResult> {};

TEST_P(ContractD1Result, Contract_D1_the_result_is_checked_before_the_record_is_kept) {
  const auto& wrong = GetParam();
  bool broken = true;
  const FreeOp op([&](const FreeOp&, Call& call) {
    return broken ? wrong.result(call.input(0), call.out()) : call.output();
  });
  const Tensor x = iota(2, 3);
  const Tensor out = wrong.with_out ? Tensor::empty({2, 3}, DType::kF32) : Tensor();
  const auto call = [&] { op(x, out); };
  EXPECT_EQ(kind_of(call), ErrorKind::kBackend);
  EXPECT_THAT(error_of(call), HasSubstr(wrong.says));
  EXPECT_EQ(kind_of([&] { op.last_call(); }), ErrorKind::kState);
  broken = false;
  EXPECT_NO_THROW(call());
  EXPECT_NE(op.last_call(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(
    Results, ContractD1Result,
    ::testing::Values(WrongResult{"absent", [](auto&, auto&) { return Tensor(); },
                                  "TestFreeFwdOp: builtin gave no y"},
                      WrongResult{"shape",
                                  [](auto&, auto&) {
                                    return Tensor::empty({3, 2}, DType::kF32);
                                  },
                                  "y has shape [3, 2] of builtin; the spec says [2, 3]"},
                      WrongResult{"dtype",
                                  [](auto&, auto&) {
                                    return Tensor::empty({2, 3}, DType::kF64);
                                  },
                                  "y of builtin has dtype float64; the spec says float32"},
                      WrongResult{"device",
                                  [](auto&, auto&) {
                                    return Tensor::empty({2, 3}, DType::kF32, kMetaDevice);
                                  },
                                  "y of builtin is on meta; the call is on cpu"},
                      WrongResult{"strides",
                                  [](auto&, auto&) {
                                    return Tensor::empty({3, 2}, DType::kF32).transpose(0, 1);
                                  },
                                  "y of builtin has strides [1, 2]; the spec says contiguous"},
                      WrongResult{"input_itself", [](auto& x, auto&) { return x; },
                                  "y of builtin shares storage with x"},
                      WrongResult{"not_the_out",
                                  [](auto&, auto&) {
                                    return Tensor::empty({2, 3}, DType::kF32);
                                  },
                                  "y of builtin is not the out that was given", true}),
    [](const auto& info) { return info.param.name; });

TEST(ContractD, Contract_D1_a_result_of_another_count_is_an_error) {
  const TargetGuard target("odd");
  register_target_builder("odd", "TestScaleFwdOp", [](const BuildRequest&) {
    return make_target_kernel([](const spec::CallTensors& tensors) -> Results {
      const Tensor y = Tensor::empty(tensors.inputs[0].shape(), tensors.inputs[0].dtype());
      return {y, y};
    });
  });
  const ScaleOp op(2, "t", {.target = "odd"});
  EXPECT_EQ(error_of([&] { op(iota(2, 3)); }),
            "BackendError: TestScaleFwdOp: odd gave 2 outputs; the spec says 1");
}

TEST(ContractD, Contract_D1_a_fresh_output_shares_no_storage_with_a_held_tensor) {
  const TableOp op(iota(2, 3));
  {
    const HookGuard hook([](Point point, const std::string& tag) {
      return point == Point::kResult && tag == "table";
    });
    EXPECT_THAT(error_of([&] { op(); }),
                HasSubstr("y of builtin shares storage with a tensor that the instance holds"));
  }
  EXPECT_EQ(values_of(op()), values_of(iota(2, 3)));
}

TEST(ContractD, Contract_D1_a_fresh_output_shares_no_storage_with_another_output) {
  const TargetGuard target("twice");
  register_target_builder("twice", "TestEffectsFwdOp", [](const BuildRequest&) {
    return make_target_kernel([](const spec::CallTensors&) -> Results {
      const Tensor all = Tensor::empty({3, 2}, DType::kF32);
      return {all.narrow(0, 0, 2), all.select(0, 2)};
    });
  });
  const EffectsOp op(false, true, {.target = "twice"});
  EXPECT_THAT(error_of([&] { op(iota(2, 2)); }), HasSubstr("sums of twice shares storage with y"));
}

TEST(ContractD, Contract_D1_an_alias_is_the_input_itself) {
  const AliasOp op;
  const Tensor x = iota(2, 3);
  EXPECT_TRUE(op(x).is_same_view(x));
  EXPECT_EQ(x.at({0, 0}), 2);
  const HookGuard hook([](Point point, const std::string& tag) {
    return point == Point::kResult && tag == "alias";
  });
  EXPECT_THAT(error_of([&] { op(x); }), HasSubstr("y of builtin is not the x that was given"));
}

TEST(ContractD, Contract_D1_a_strided_out_is_filled_and_returned) {
  const ScaleOp op;
  const Tensor out = Tensor::empty({3, 2}, DType::kF32).transpose(0, 1);
  EXPECT_TRUE(op(iota(2, 3), out).is_same_view(out));
  EXPECT_EQ(values_of(out), (std::vector<double>{2, 4, 6, 8, 10, 12}));
}

TEST(ContractD, Contract_D1_contents_are_checked_on_request) {
  const CountOp lax;
  const CountOp strict(OpOptions{.validate_inputs = true});
  const Tensor x = iota(4, 3);
  const double out_of_range[] = {1, 9};
  const Tensor rows = Tensor::from_values({1, 2}, DType::kI32, out_of_range);
  EXPECT_NO_THROW(lax(x, rows));
  EXPECT_THAT(error_of([&] { strict(x, rows); }), HasSubstr("TestCountFwdOp: rows[0, 1] is 9"));
  EXPECT_EQ(kind_of([&] { strict.last_call(); }), ErrorKind::kState);
}

}  // namespace
}  // namespace tileops::contract
