// SPDX-License-Identifier: Apache-2.0
// How the CPU's kernels find the packed copy of weights.
#pragma once

#include <memory>

#include "tileops/cpu/packed_weights.h"

namespace tileops {

/// The packed copy of these weights that a PackedExperts holds; null where none does.
std::shared_ptr<const cpu::PackedWeights> find_packed(const cpu::WeightsView& weights,
                                                      cpu::GateLayout gate);

}  // namespace tileops
