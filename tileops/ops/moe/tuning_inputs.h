// SPDX-License-Identifier: Apache-2.0
// What the family's kernels are tuned on: the sizes of calls that share a choice, and routing as
// models make it. Private to the ops' sources.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tileops/core/tensor.h"
#include "tileops/ops/moe/layout.h"

namespace tileops {

/// The scenarios of every tuning, by the spec's names.
inline constexpr std::array<std::string_view, 2> kTuningRoutings = {"uniform", "skewed"};

/// Calls with so many routes on so many experts: "16 rows/E" up to the next power of two, "8 rows"
/// where there are fewer rows than experts.
std::string rows_bucket(int64_t num_rows, int64_t num_experts);

/// Metadata of a layout whose rows are as full as the layout allows for any routing; masked slabs
/// are half full. On the device.
Tensor tuning_metadata(const MGroupedLayout& layout, int64_t num_rows, int64_t num_experts,
                       std::string_view routing, Device device);

/// Ids [T, top_k] i32 and weights [T, top_k] f32 of a routing, on the CPU.
Tensor tuning_topk_ids(int64_t num_tokens, int64_t top_k, int64_t num_experts,
                       std::string_view routing);
Tensor tuning_topk_weights(int64_t num_tokens, int64_t top_k);

/// So few experts that a CPU call on them reads 256 MiB of weights at most and takes a fraction of a
/// second, but at least two where there are two: rows an expert are what decides there.
int64_t cpu_tuning_experts(int64_t num_experts, int64_t elements_per_expert, DType dtype,
                           int64_t rows_per_expert);

}  // namespace tileops
