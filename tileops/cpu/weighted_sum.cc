// SPDX-License-Identifier: Apache-2.0
#include "tileops/cpu/weighted_sum.h"

#include "tileops/cpu/kernels.h"

namespace tileops::cpu {

void weighted_sum(const WeightedSum& sum) { isa_kernels(active_isa()).weighted_sum(sum); }

}  // namespace tileops::cpu
