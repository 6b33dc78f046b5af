// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tileops/op/typed_op.h>

namespace example {

/// What selection may know of a call.
struct WindowMeanCall {
  int64_t window = 1;
  tileops::DType dtype = tileops::DType::kF32;
  tileops::Device device;
  bool operator==(const WindowMeanCall&) const = default;
  size_t hash() const;
  std::string to_string() const;
};

class WindowMeanKernel : public tileops::Kernel {
 public:
  virtual void run(const tileops::Tensor& x, const tileops::Tensor& y) const = 0;
};

struct WindowMean {
  static constexpr std::string_view kName = "window_mean";
  using Call = WindowMeanCall;
  using Kernel = WindowMeanKernel;
};

/// A leaf. Shapes: x [M, N], y as x. Errors: the spec's checks. Source: smooth.yaml.
class WindowMeanOp : public tileops::TypedOp<WindowMeanOp> {
 public:
  static constexpr std::string_view kName = "ExampleWindowMeanFwdOp";
  using interfaces = tileops::KernelInterfaces<WindowMean>;
  static std::vector<tileops::AnyImplementation> kernel_types();

  explicit WindowMeanOp(int64_t window, tileops::OpOptions options = {});
  static std::shared_ptr<WindowMeanOp> from_params(const tileops::Params& params,
                                                   const tileops::OpOptions& options);

  tileops::Tensor operator()(const tileops::Tensor& x) const { return invoke(*this, x); }
  static tileops::Tensor invoke(const tileops::Op& op, const tileops::Tensor& x);

 protected:
  tileops::Results forward(tileops::Call& call) const override;

 private:
  int64_t window_;
};

/// A composite: the window depends on the call, so forward holds a sub-op per window.
class SmoothOp : public tileops::TypedOp<SmoothOp> {
 public:
  static constexpr std::string_view kName = "ExampleSmoothFwdOp";
  using delegate_types = tileops::DelegateTypes<tileops::Stage<"window_mean", WindowMeanOp>>;

  explicit SmoothOp(tileops::OpOptions options = {});
  static std::shared_ptr<SmoothOp> from_params(const tileops::Params& params,
                                               const tileops::OpOptions& options);

  tileops::Tensor operator()(const tileops::Tensor& x) const { return invoke(*this, x); }
  static tileops::Tensor invoke(const tileops::Op& op, const tileops::Tensor& x);

 protected:
  tileops::Results forward(tileops::Call& call) const override;
};

}  // namespace example
