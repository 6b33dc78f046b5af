// SPDX-License-Identifier: Apache-2.0
// Which grouped GEMM kernel serves a problem on sm_90a: a pure function, no CUDA needed.
#pragma once

#include <cstdint>
#include <string>

#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_params.h"

namespace tileops::grouped_gemm {

struct Sm90Problem {
  int64_t num_rows = 0;  // of a, padding included; masked: E * max_m
  int64_t num_experts = 0;
  int64_t n = 0;  // rows of one expert's weights
  int64_t k = 0;
  ElementType in = ElementType::kBF16;
  ElementType out = ElementType::kBF16;
  GatedActivation activation = GatedActivation::kNone;
  bool has_bias = false;
  bool operator==(const Sm90Problem&) const = default;
};

/// Tuned numbers of one kernel instance; equal configs share one compiled kernel.
struct Sm90Config {
  ElementType in = ElementType::kBF16;
  ElementType out = ElementType::kBF16;
  GatedActivation activation = GatedActivation::kNone;
  bool has_bias = false;
  int32_t tile_rows = 256;
  int32_t row_step = 32;
  int32_t stages = 4;
  int32_t ctas = 2;
  LoadKind load = LoadKind::kTma;
  bool operator==(const Sm90Config&) const = default;

  int64_t smem_bytes() const { return grouped_gemm::smem_bytes(tile_rows, stages); }

  /// The NVRTC name expression of the kernel.
  std::string kernel_name() const {
    auto text = [](auto value) { return std::to_string(static_cast<int>(value)); };
    const std::string space = "tileops::grouped_gemm::";
    return space + "sm90_kernel<" + space + "Config<static_cast<" + space + "ElementType>(" +
           text(in) + "), static_cast<" + space + "ElementType>(" + text(out) + "), static_cast<" +
           space + "GatedActivation>(" + text(activation) + "), " + (has_bias ? "true" : "false") +
           ", " + text(tile_rows) + ", " + text(row_step) + ", " + text(stages) + ", " +
           text(ctas) + ", static_cast<" + space + "LoadKind>(" + text(load) + ")>>";
  }
};

/// Workspace of a launch with `grid` CTAs: two warpgroups a CTA, tile_rows / 2 floats a thread.
inline int64_t workspace_floats(const Sm90Config& config, int64_t grid) {
  return grid * 2 * 128 * config.tile_rows / 2;
}
inline int64_t workspace_flags(const Sm90Config&, int64_t grid) { return grid * 2; }

/// Few rows an expert: no clusters and a deeper ring, the weights stream alone decides. More: tiles
/// of 256 rows whose loads a cluster shares.
inline Sm90Config choose_config(const Sm90Problem& problem) {
  Sm90Config config{problem.in, problem.out, problem.activation, problem.has_bias};
  constexpr int64_t kFewRows = 64;
  if (problem.num_rows <= kFewRows * problem.num_experts) {
    config.tile_rows = 128;
    config.row_step = 16;
    config.stages = 6;
    config.ctas = 1;
  }
  return config;
}

/// Whole tiles are kept unless a split along K saves more k_tiles than the hand-over costs.
inline int32_t split_cost_k_tiles(const Sm90Config& config) { return 4 + config.tile_rows / 32; }

}  // namespace tileops::grouped_gemm
