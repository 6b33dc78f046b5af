// SPDX-License-Identifier: Apache-2.0
// What happens as the library is loaded: CUDA devices become known. No driver is touched.
#include "tileops/cuda/setup.h"

namespace tileops::cuda {
namespace {

[[maybe_unused]] const bool kInstalled = [] {
  install();
  return true;
}();

}  // namespace
}  // namespace tileops::cuda
