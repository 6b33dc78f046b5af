// SPDX-License-Identifier: Apache-2.0
#include "tileops/ops/moe/indexed_expert_mlp/indexed_expert_mlp_op.h"

#include "tests/support/workload_bench.h"

namespace tileops {
namespace {

const bool kRegistered = testing::register_workload_benches<IndexedExpertMLPFwdOp>(
    {"qwen3-30b-a3b-t1-uniform", "qwen3-30b-a3b-t32-uniform", "mixtral-8x7b-t1-uniform"});

}  // namespace
}  // namespace tileops
