// SPDX-License-Identifier: Apache-2.0
// Many threads on one op: built once, recorded right, undone cleanly. Meant for ThreadSanitizer
// too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>
#include <thread>

#include "contract/contract_ops.h"
#include "tileops/dispatch/target.h"

namespace tileops::contract {
namespace {

constexpr int kThreads = 8;
constexpr int kCalls = 1000;

/// Runs the body on all threads at once.
template <class Body>
void on_all_threads(Body&& body) {
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, Contract_B11_a_cold_composite_builds_each_identity_once) {
  reset_counts();
  const WidthOp op("w");
  std::atomic<int> wrong{0};
  on_all_threads([&](int i) {
    for (int call = 0; call < kCalls; ++call) {
      const int64_t n = 1 + (i + call) % 5;
      const Tensor y = op(iota(1, n));
      if (y.shape()[1] != n || y.at({0, n - 1}) != static_cast<double>(n * n)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(op.held_delegates().size(), 5u);
  for (int n = 1; n <= 5; ++n) {
    const std::string tag = "w." + std::to_string(n);
    EXPECT_EQ(count_of(Point::kConstruct, tag), 1) << tag;
    EXPECT_EQ(count_of(Point::kEntryBuild, tag), 1) << tag;
    EXPECT_EQ(count_of(Point::kKernel, tag), kThreads * kCalls / 5) << tag;
  }
}

TEST(Threads, Contract_D8_every_record_has_the_stages_of_its_own_call) {
  const WidthOp op("w");
  std::atomic<int> wrong{0};
  on_all_threads([&](int i) {
    for (int call = 0; call < kCalls; ++call) {
      op(iota(1 + i, 1 + call % 5));
      const RecordPtr record = op.last_call();  // of some thread's call, and whole
      const auto staged = record->stages("by_width");
      if (staged.size() != 1 || staged[0]->index("N") != record->index("N") ||
          staged[0]->index("M") != record->index("M")) {
        ++wrong;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, Contract_D7_joined_threads_file_all_their_calls) {
  const FreeOp op([](const FreeOp& self, Call& call) {
    const auto a = self.hold("a", settled);
    const CallToken token = call.token();
    on_all_threads([&](int) {
      const JoinCall join(token);
      for (int i = 0; i < 10; ++i) ScaleOp::invoke(*a, call.input(0));
    });
    return ScaleOp::invoke(*a, call.input(0));
  });
  for (int round = 0; round < 10; ++round) {
    op(iota(1, 2));
    EXPECT_EQ(op.last_call()->stages("a").size(), static_cast<size_t>(10 * kThreads + 1));
  }
}

TEST(Threads, Contract_H1_failing_calls_beside_good_ones_leave_each_alone) {
  const ChainOp chain(2, "t");
  std::atomic<int> thrown{0}, wrong{0};
  const HookGuard hook([](Point point, const std::string& tag) -> bool {
    thread_local int runs = 0;
    if (point == Point::kKernel && tag == "t.second" && ++runs % 3 == 0) {
      throw std::runtime_error("injected");
    }
    return false;
  });
  on_all_threads([&](int i) {
    for (int call = 0; call < kCalls; ++call) {
      try {
        const Tensor y = chain(iota(1, 1 + i % 4));
        if (y.at({0, 0}) != 4) ++wrong;
      } catch (const std::runtime_error&) {
        ++thrown;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(thrown, kThreads * (kCalls / 3));
  const RecordPtr record = chain.last_call();
  EXPECT_EQ(record->stages("first").size(), 1u);
  EXPECT_EQ(record->stages("second").size(), 1u);
}

TEST(Threads, Contract_H2_undo_beside_running_calls_leaves_a_working_op) {
  const TargetGuard target("flaky");
  std::atomic<int> builds{0};
  register_target_detector("flaky", [](Device) { return true; });
  register_target_builder("flaky", "TestScaleFwdOp", [&](const BuildRequest&) {
    if (++builds % 2 == 0) throw std::runtime_error("injected");
    return make_target_kernel([](const spec::CallTensors& tensors) -> Results {
      const Tensor& x = tensors.inputs[0];
      return {Tensor::from_values(x.shape(), DType::kF32,
                                  std::vector<double>(static_cast<size_t>(x.num_elements()), 7))};
    });
  });
  const auto shared = std::make_shared<ScaleOp>(2, "shared");
  std::atomic<int> wrong{0};
  on_all_threads([&](int i) {
    for (int call = 0; call < kCalls / 4; ++call) {
      // A fresh composite selects at its call, so that a failure undoes the shared sub-op as well.
      const ChainOp chain(2, "t", shared, nullptr);
      try {
        if (chain(iota(1, 1 + (i + call) % 7)).at({0, 0}) != 7) ++wrong;
      } catch (const std::runtime_error&) {
        if (chain.serving_target().has_value()) ++wrong;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      EXPECT_EQ((*shared)(iota(1, 99)).at({0, 0}), 7);
      break;
    } catch (const std::runtime_error&) {
      EXPECT_EQ(attempt, 0) << "every second build works";
    }
  }
}

TEST(Threads, Contract_G1_the_target_is_settled_once) {
  const TargetGuard target("once");
  std::atomic<int> builds{0};
  register_target_detector("once", [](Device) { return true; });
  register_target_builder("once", "TestScaleFwdOp", [&](const BuildRequest&) {
    ++builds;
    return make_target_kernel([](const spec::CallTensors& tensors) -> Results {
      return {Tensor::empty(tensors.inputs[0].shape(), tensors.inputs[0].dtype())};
    });
  });
  const ScaleOp op(2, "t");
  on_all_threads([&](int) { op(iota(1, 3)); });
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(op.serving_target(), "once");
}

TEST(Threads, Contract_C2_tuning_beside_calls_tunes_everything_once) {
  reset_counts();
  const WidthOp op("w");
  on_all_threads([&](int i) {
    if (i == 0) op.request_tune();
    for (int call = 0; call < 50; ++call) op(iota(1, 1 + call % 5));
  });
  for (const HeldDelegate& held : op.held_delegates()) {
    EXPECT_TRUE(held.op->tuned());
    for (const KernelConfig& config : held.op->kernel_config()) {
      EXPECT_EQ(config.values, (Params{{"tile", 8}})) << config.implementation;
    }
  }
}

TEST(Threads, Contract_G5_registrations_beside_constructions_are_seen_whole) {
  on_all_threads([&](int i) {
    for (int round = 0; round < 50; ++round) {
      const std::string key = "added_" + std::to_string(i);
      register_kernel_type<Scale>("TestScaleFwdOp",
                                  scale_implementation({.key = key, .devices = {DeviceType::kCUDA}},
                                                       [](const ScaleCall&) { return Refusal(); }));
      EXPECT_EQ(ScaleOp(2, "t")(iota(1, 1)).at({0, 0}), 2);
      unregister_kernel_type("TestScaleFwdOp", key);
    }
  });
}

}  // namespace
}  // namespace tileops::contract
