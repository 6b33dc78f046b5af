// SPDX-License-Identifier: Apache-2.0
// The operators that a leaf op class is to PyTorch, from its spec entry. No header of torch's here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tileops/spec/effects.h"

namespace tileops::torch_adapter {

/// One operator: a leaf class in one effect branch.
struct Operator {
  std::shared_ptr<const spec::Entry> entry;
  spec::EffectBranch branch;
  std::string name;               // "tileops_cpp::moe_grouped_gemm_fwd_out"
  std::vector<size_t> out_slots;  // of the given buffers, in CallTensors::outs
  size_t num_outs = 0;            // buffers that a call may be given
  std::vector<int> fresh;         // outputs that it returns
};

/// One for each effect branch. Errors: kSpec (too many effects).
std::vector<Operator> operators_of(const std::shared_ptr<const spec::Entry>& entry);

/// In PyTorch's schema language: the key, the inputs in the signature's order, then the buffers:
/// "moe_x_fwd_out(str key, Tensor a, Tensor? bias=None, *, Tensor(w0!) out) -> ()".
std::string schema_of(const Operator& op);

}  // namespace tileops::torch_adapter
