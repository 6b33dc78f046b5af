// SPDX-License-Identifier: Apache-2.0
// What a call takes of the CPU's memory, and weights packed before it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tileops/ops/moe/packed_experts.h"
#include "tileops/spec/entry.h"

namespace tileops::tools {

/// While it lives, counts what the process's allocator of CPU tensors hands out.
class CountedAllocations {
 public:
  CountedAllocations();
  ~CountedAllocations();
  CountedAllocations(const CountedAllocations&) = delete;
  CountedAllocations& operator=(const CountedAllocations&) = delete;

  /// Most bytes that were in use at once, of those handed out since this began.
  int64_t peak_bytes() const;
};

/// The packed weights of an op's inputs, routed and shared, where it has both kinds.
struct PackedInputs {
  std::optional<PackedExperts> routed, shared;
  double ms = 0;  // that packing took
};
/// Errors: kValue where the op has no experts' weights; those of PackedExperts.
PackedInputs pack_weights(const std::vector<Tensor>& inputs, const spec::Entry& entry,
                          const Params& params);

}  // namespace tileops::tools
