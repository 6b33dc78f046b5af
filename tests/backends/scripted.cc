// SPDX-License-Identifier: Apache-2.0
// A backend that does what its definitions say: see CMakeLists.txt.
#include <stdexcept>

#include "tileops/dispatch/backend.h"

#ifdef WRONG_VERSION
#define ENTRY_POINT tileops_backend_register_v0
#else
#define ENTRY_POINT TILEOPS_BACKEND_ENTRY_POINT
#endif

extern "C" void ENTRY_POINT(tileops::BackendRegistrar& registrar) {
  const auto builder = [](const tileops::BuildRequest&) {
    return tileops::make_target_kernel(
        [](const tileops::spec::CallTensors& tensors) -> tileops::Results {
          return {tileops::Tensor::empty(tensors.inputs[0].shape(), tensors.inputs[0].dtype())};
        });
  };
  registrar.target_builder(TARGET_NAME, "MoEGroupedGemmFwdOp", builder);
  registrar.target_detector(TARGET_NAME, [](tileops::Device) { return false; });
#ifdef THROWS_MIDWAY
  throw std::runtime_error("the driver is too old");
#endif
#ifdef TAKES_A_NAME
  registrar.target_builder(TARGET_NAME, "MoEGroupedGemmFwdOp", builder);
#endif
#ifdef INTERRUPTS_ONCE
  static bool interrupted = false;
  if (!interrupted) {
    interrupted = true;
    throw 130;  // what a front end throws for an interrupt is no std::exception
  }
#endif
}
