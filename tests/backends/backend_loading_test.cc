// SPDX-License-Identifier: Apache-2.0
// G6: backends from shared libraries. Each suite is run in a process of its own, whose search path
// CMakeLists.txt sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "contract/contract_ops.h"
#include "tileops/core/error_testing.h"
#include "tileops/core/log.h"
#include "tileops/dispatch/backend.h"
#include "tileops/dispatch/target.h"
#include "tileops/ops/register.h"

namespace tileops::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kFolder = BACKENDS_DIR;

std::vector<std::string> failures() {
  std::vector<std::string> lines;
  for (const LoadFailure& failure : load_failures())
    lines.push_back(failure.path + ": " + failure.error);
  return lines;
}

TEST(Broken, Contract_G6_a_backend_that_fails_is_undone_warned_of_and_listed_and_the_others_load) {
  register_ops();
  const Warnings warnings;
  const ScaleOp op;
  op(iota(1, 1));  // the first selection loads what the search path names
  EXPECT_THAT(
      failures(),
      ElementsAre(HasSubstr("broken/1_throws_midway.so: the driver is too old"),
                  HasSubstr("broken/2_wrong_version.so: it does not export "
                            "tileops_backend_register_v1"),
                  HasSubstr("broken/3_takes_a_name.so: target broken_3_takes_a_name: a builder "
                            "for MoEGroupedGemmFwdOp is registered already"),
                  HasSubstr("broken/4_no_library.so: ")));
  EXPECT_THAT(loaded_backends(), ElementsAre(EndsWith("broken/5_good.so")));
  EXPECT_THAT(target_names(), ElementsAre("broken_5_good"))
      << "what the others registered is undone";
  ASSERT_EQ(warnings.seen().size(), 4u) << "each once";
  EXPECT_THAT(warnings.seen()[0],
              HasSubstr("1_throws_midway.so was not loaded: the driver is too old"));

  const ScaleOp lost(2, "", {.target = "broken_1_throws_midway"});
  EXPECT_THAT(
      error_of([&] { lost(iota(1, 1)); }),
      HasSubstr(
          "target broken_1_throws_midway is not known; known: builtin, broken_5_good; backends "
          "that failed to load: "));
  EXPECT_THAT(error_of([&] { lost(iota(1, 1)); }),
              HasSubstr("1_throws_midway.so (the driver is too old)"));
  load_backends();
  EXPECT_EQ(load_failures().size(), 4u) << "once a process";
}

TEST(ThrowingHandler, Contract_G6_warnings_turned_to_errors_do_not_cut_loading_short) {
  register_ops();
  set_warning_handler([](std::string_view text) { throw std::runtime_error(std::string(text)); });
  EXPECT_NO_THROW(load_backends());
  set_warning_handler(nullptr);
  EXPECT_EQ(load_failures().size(), 4u);
  EXPECT_THAT(loaded_backends(), ElementsAre(EndsWith("5_good.so")));
}

TEST(Interrupted, Contract_G6_an_interrupt_reaches_the_caller_and_loading_can_be_tried_again) {
  register_ops();
  EXPECT_THROW(load_backends(), int);
  EXPECT_THAT(target_names(), ElementsAre("interrupted_1_good"))
      << "what was interrupted is undone";
  EXPECT_THAT(loaded_backends(), ElementsAre(EndsWith("1_good.so")));
  load_backends();
  EXPECT_THAT(loaded_backends(), ElementsAre(EndsWith("1_good.so"), EndsWith("2_interrupts.so"),
                                             EndsWith("3_good.so")))
      << "in a fixed order, each once";
  EXPECT_THAT(target_names(),
              ElementsAre("interrupted_1_good", "interrupted_2_interrupts", "interrupted_3_good"));
}

TEST(Explicit, Contract_G6_one_library_is_loaded_by_hand) {
  register_ops();
  load_backends();
  EXPECT_THAT(loaded_backends(), IsEmpty());
  load_backend(kFolder + "/broken/5_good.so");
  EXPECT_THAT(loaded_backends(), ElementsAre(kFolder + "/broken/5_good.so"));
  EXPECT_THAT(target_names(), ElementsAre("broken_5_good"));
  unregister_target("broken_5_good");
}

TEST(Explicit, Contract_G6_a_library_that_cannot_be_loaded_by_hand_is_an_error_that_names_it) {
  register_ops();
  const auto load = [](const std::string& file) {
    return [file] { load_backend(kFolder + "/" + file); };
  };
  EXPECT_EQ(kind_of(load("nothing.so")), ErrorKind::kBackend);
  EXPECT_THAT(error_of(load("nothing.so")),
              HasSubstr("BackendError: backend " + kFolder + "/nothing.so: "));
  EXPECT_THAT(error_of(load("broken/4_no_library.so")), HasSubstr("4_no_library.so: "));
  EXPECT_THAT(error_of(load("broken/2_wrong_version.so")),
              HasSubstr("2_wrong_version.so: it does not export tileops_backend_register_v1"));
  EXPECT_EQ(kind_of(load("broken/1_throws_midway.so")), ErrorKind::kBackend);
  EXPECT_THAT(error_of(load("broken/1_throws_midway.so")),
              HasSubstr("1_throws_midway.so: the driver is too old"));
  EXPECT_THAT(target_names(), IsEmpty());
}

}  // namespace
}  // namespace tileops::contract
