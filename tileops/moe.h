// SPDX-License-Identifier: Apache-2.0
// The MoE family, for users.
#pragma once

#include "tileops/ops/moe/expert_mlp/expert_mlp_op.h"
#include "tileops/ops/moe/grouped_gemm/grouped_gemm_op.h"
