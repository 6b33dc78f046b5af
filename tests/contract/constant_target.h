// SPDX-License-Identifier: Apache-2.0
// A target whose kernels give one value everywhere.
#pragma once

#include <string>
#include <vector>

#include "contract/contract_support.h"
#include "tileops/dispatch/target.h"

namespace tileops::contract {

/// Builds kernels that give `value` everywhere, and notes what each build was asked for.
class Constant {
 public:
  explicit Constant(double value) : value_(value) {}

  TargetBuilder builder() {
    return [this](const BuildRequest& request) {
      requests.push_back({std::string(request.op), request.device, request.inputs, request.params});
      return make_target_kernel([this](const spec::CallTensors& tensors) -> Results {
        ++runs;
        const Tensor& x = tensors.inputs[0];
        const bool given = !tensors.outs.empty() && tensors.outs[0].defined();
        const Tensor y = given ? tensors.outs[0] : Tensor::empty(x.shape(), x.dtype());
        copy_elements(
            Tensor::from_values(x.shape(), DType::kF64,
                                std::vector<double>(static_cast<size_t>(x.num_elements()), value_)),
            y);
        return {y};
      });
    };
  }

  struct Request {
    std::string op;
    Device device;
    std::vector<spec::TensorFacts> inputs;
    Params params;
  };
  std::vector<Request> requests;
  int runs = 0;

 private:
  double value_;
};

}  // namespace tileops::contract
