// SPDX-License-Identifier: Apache-2.0
// For tests of faults: a target that fails on request, and a call and its record in a word.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "contract/contract_ops.h"
#include "contract/fault_model.h"
#include "tileops/dispatch/target.h"

namespace tileops::contract {

/// A target whose kernels do what the builtin ones do, and which asks the hook as they do.
class TestTarget {
 public:
  explicit TestTarget(World world) {
    register_target_detector("faulty", [this, world](Device) {
      if (selections_left >= 0 && selections_left-- == 0) throw std::runtime_error("injected");
      return world != World::kBuiltin;
    });
    const auto builder = [this](double power) {
      return [this, power](const BuildRequest& request) { return build(request, power); };
    };
    register_target_builder("faulty", "TestScaleFwdOp", builder(1));
    if (world == World::kChainTarget)
      register_target_builder("faulty", "TestChainFwdOp", builder(2));
  }
  ~TestTarget() { unregister_target("faulty"); }
  TestTarget(const TestTarget&) = delete;
  TestTarget& operator=(const TestTarget&) = delete;

  int selections_left = -1;
  std::string uncallable;  // tag of the op for which the builder gives nothing

 private:
  class Kernel final : public TargetKernel {
   public:
    Kernel(double factor, std::string tag) : factor_(factor), tag_(std::move(tag)) {}
    Results run(const spec::CallTensors& tensors) override {
      const Tensor& x = tensors.inputs[0];
      const Tensor y = Tensor::empty(x.shape(), x.dtype());
      ScaleKernel("target", factor_, tag_).run(x, y);
      return {result_of(tag_, y)};
    }
    bool tunable() const override { return true; }
    void request_tune() override {
      if (tuned_) return;
      at(Point::kTune, tag_);
      tuned_ = true;
    }

   private:
    double factor_;
    std::string tag_;
    bool tuned_ = false;
  };

  std::shared_ptr<TargetKernel> build(const BuildRequest& request, double power) const {
    const std::string& tag = *request.params.at("tag").as_string();
    at(Point::kEntryBuild, tag);
    if (tag == uncallable) return nullptr;
    const double factor = *request.params.at("factor").as_double();
    return std::make_shared<Kernel>(power == 2 ? factor * factor : factor, tag);
  }
};

inline Tensor call_op(const Op& op, const Tensor& x) { return ScaleOp::invoke(op, x); }

/// None before the first call.
inline RecordPtr record_of(const Op& op) {
  try {
    return op.last_call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kState);
    return nullptr;
  }
}

}  // namespace tileops::contract
