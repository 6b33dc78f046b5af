// SPDX-License-Identifier: Apache-2.0
#include "smooth_op.h"

#include <algorithm>

#include <tileops/core/hash.h>

namespace example {

using tileops::BuildOptions;
using tileops::Call;
using tileops::OpOptions;
using tileops::Params;
using tileops::Results;
using tileops::Tensor;

size_t WindowMeanCall::hash() const {
  return tileops::hash_of(window, static_cast<int>(dtype), static_cast<int>(device.type),
                          device.index);
}

std::string WindowMeanCall::to_string() const { return "window " + std::to_string(window); }

namespace {

class PlainKernel final : public WindowMeanKernel {
 public:
  explicit PlainKernel(int64_t window) : window_(window) {}

  void run(const Tensor& x, const Tensor& y) const override {
    for (int64_t row = 0; row < x.shape()[0]; ++row) {
      for (int64_t column = 0; column < x.shape()[1]; ++column) {
        const int64_t begin = std::max<int64_t>(0, column - window_ + 1);
        double sum = 0;
        for (int64_t i = begin; i <= column; ++i) sum += x.at({row, i});
        const Tensor to = y.select(0, row).narrow(0, column, 1);
        tileops::store_element(y.dtype(), to.data(), sum / static_cast<double>(column - begin + 1));
      }
    }
  }

 private:
  int64_t window_;
};

}  // namespace

std::vector<tileops::AnyImplementation> WindowMeanOp::kernel_types() {
  return {tileops::erase(tileops::Implementation<WindowMean>{
      .info = {.key = "plain", .devices = {tileops::DeviceType::kCPU}, .general = true},
      .refusal = [](const WindowMeanCall&) { return tileops::Refusal(); },
      .entry_for = [](const WindowMeanCall& call) -> tileops::EntryFor<WindowMean> {
        return {call.window, [window = call.window](const BuildOptions&) {
                  return std::make_shared<PlainKernel>(window);
                }};
      }})};
}

WindowMeanOp::WindowMeanOp(int64_t window, OpOptions options)
    : TypedOp({{"window", window}}, std::move(options)), window_(window) {}

std::shared_ptr<WindowMeanOp> WindowMeanOp::from_params(const Params& params,
                                                        const OpOptions& options) {
  return std::make_shared<WindowMeanOp>(*params.at("window").as_int(), options);
}

Tensor WindowMeanOp::invoke(const tileops::Op& op, const Tensor& x) {
  const Tensor* inputs[] = {&x};
  return op.call({inputs, {}})[0];
}

Results WindowMeanOp::forward(Call& call) const {
  const Tensor& x = call.input(0);
  const Tensor y = call.output();
  kernel_for<WindowMean>(call, {window_, x.dtype(), x.device()}).run(x, y);
  return {y};
}

SmoothOp::SmoothOp(OpOptions options) : TypedOp({}, std::move(options)) {}

std::shared_ptr<SmoothOp> SmoothOp::from_params(const Params&, const OpOptions& options) {
  return std::make_shared<SmoothOp>(options);
}

Tensor SmoothOp::invoke(const tileops::Op& op, const Tensor& x) {
  const Tensor* inputs[] = {&x};
  return op.call({inputs, {}})[0];
}

Results SmoothOp::forward(Call& call) const {
  const int64_t window = std::max<int64_t>(1, call.index("N") / 4);
  const auto window_mean = delegate_for<"window_mean">(window, nullptr, window);
  return {window_mean(window_mean(call.input(0)))};
}

}  // namespace example
