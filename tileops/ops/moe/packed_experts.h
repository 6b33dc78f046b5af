// SPDX-License-Identifier: Apache-2.0
// PackedExperts: experts' weights packed once for the CPU's kernels, as long as the caller wants
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tileops/core/tensor.h"
#include "tileops/ops/moe/activation.h"

namespace tileops {

/// While it lives, every op of this process that is called with these weights (the same data, shape
/// and strides, on the CPU) reads the packed copy; without it, weights are packed as they are used.
/// The weights' contents must not change meanwhile: that is why no op packs on its own. Move-only.
/// Thread safety: may be made, used and dropped while calls run; a running call keeps its copy.
class PackedExperts {
 public:
  /// w_gate_up [E, 2F, H] for the activation's order of rows, w_down [E, H, F]; of a shared expert
  /// [2S, H] and [H, S], for silu_and_mul (read packed where one rank computes all of it).
  /// Errors: kShape, kDType, kDevice, kOutOfMemory.
  PackedExperts(const Tensor& w_gate_up, const Tensor& w_down,
                const GatedActivation& activation = GatedActivation::silu_and_mul);
  PackedExperts(PackedExperts&&) noexcept = default;
  PackedExperts& operator=(PackedExperts&&) noexcept = default;
  ~PackedExperts();

  /// What stands for weights that are kept packed alone.
  struct StandIns {
    Tensor w_gate_up, w_down;
  };
  /// Lets the weights go, so that their memory can be freed: from now on the packed copies are found
  /// under the tensors returned, which have the same shapes and dtype and one NaN in memory (all
  /// strides 0). A kernel that reads no packed copy therefore gives NaN. Again: the same tensors.
  StandIns release_weights();

  /// Memory that the packed copies take.
  int64_t bytes() const;
  /// The same for all that live in the process.
  static int64_t process_bytes();

 private:
  struct Entry;
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace tileops
