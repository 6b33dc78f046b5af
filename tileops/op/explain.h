// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tileops/dispatch/kernel.h"
#include "tileops/op/explanation.h"
#include "tileops/op/op.h"

namespace tileops {

/// What would serve a call with tensors of these facts on a device with those, which need not be in
/// the machine. Nothing runs, is built or is recorded; the tensors may be meta.
/// Errors: those of the call's check; kValue (unknown target).
Explanation explain_call(const Op& op, const spec::CallTensors& tensors, const DeviceFacts& device);

/// The kernels that would serve it, built for this question alone, in call order: what `warm` asks
/// for their programs. Errors: as above; selection's; what a builder throws.
std::vector<std::shared_ptr<Kernel>> kernels_for_call(const Op& op,
                                                      const spec::CallTensors& tensors,
                                                      const DeviceFacts& device);

/// A tensor of the same facts on the meta device; absent for an absent one.
Tensor meta_like(const Tensor& tensor);

}  // namespace tileops
