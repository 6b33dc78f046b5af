// SPDX-License-Identifier: Apache-2.0
// Which grouped GEMM kernel serves a problem on sm_90a, and its launch: pure functions, no CUDA.
#pragma once

#include <cstdint>
#include <string>

#include "tileops/ops/moe/grouped_gemm/grouped_gemm_sm90_params.h"

namespace tileops::grouped_gemm {

struct Sm90Problem {
  int64_t num_rows = 0;  // of the layout, padding included; masked: E * max_m
  int64_t num_experts = 0;
  int64_t max_m = 0;  // masked: rows of a slab; otherwise 0
  int64_t n = 0;      // rows of one expert's weights; gated: gate and up together
  int64_t k = 0;
  ElementType in = ElementType::kBF16;
  ElementType out = ElementType::kBF16;
  ActivationKind activation = ActivationKind::kNone;
  bool has_bias = false;
  bool fits_tma = true;  // sizes, strides and alignment as grouped_gemm_sm90_params.h asks
  bool operator==(const Sm90Problem&) const = default;
};

/// Tuned numbers of one kernel instance; equal configs share one compiled kernel.
struct Sm90Config {
  ElementType in = ElementType::kBF16;
  ElementType out = ElementType::kBF16;
  ActivationKind activation = ActivationKind::kNone;
  bool has_bias = false;
  int32_t tile_features = 128;
  int32_t tile_rows = 0;
  int32_t stages = 0;
  int32_t ctas = 1;
  bool ping_pong = false;  // math warpgroups take whole tiles in turn
  LoadKind load = LoadKind::kTma;
  bool operator==(const Sm90Config&) const = default;

  int64_t smem_bytes() const { return grouped_gemm::smem_bytes(tile_features, tile_rows, stages); }

  /// Every SM, in whole clusters.
  int64_t grid(int64_t num_sms) const { return num_sms / ctas * ctas; }

  /// Tiles of few rows wait for memory, which a wave of few tiles has for itself.
  int64_t lone_tile_k_tiles(int64_t num_k_tiles) const {
    return tile_rows <= 128 && !ping_pong ? num_k_tiles * 2 / 5 : num_k_tiles;
  }
  /// In ping-pong no products of the same tile hide a hand-over, and a k_tile is half as long.
  int64_t split_cost_k_tiles() const { return ping_pong ? 28 : 4 + tile_rows / 32; }

  /// Who counts in a row tile's counter, see device::AwaitedRows: warpgroups that write a part of
  /// its rows, and CTAs that read them, by k_tile.
  int64_t row_tile_writers(int64_t num_features) const {
    return ctas_of_row_tile(num_features) * (ping_pong ? 1 : 2);
  }
  int64_t row_tile_reads(int64_t num_features, int64_t num_k_tiles) const {
    return ctas_of_row_tile(num_features) * num_k_tiles;
  }

  /// Workspace of a launch: a tile a CTA, a flag for each strip of 64 weight rows.
  int64_t workspace_floats(int64_t num_sms) const {
    return grid(num_sms) * tile_features * tile_rows;
  }
  int64_t workspace_flags(int64_t num_sms) const { return grid(num_sms) * (tile_features / 64); }

  /// Tiles of so many output features, in whole clusters.
  int64_t ctas_of_row_tile(int64_t num_features) const {
    const int64_t of_cluster =
        tile_features / (activation == ActivationKind::kNone ? 1 : 2) * int64_t{ctas};
    return (num_features + of_cluster - 1) / of_cluster * ctas;
  }

  /// What messages call it: "tma 128x176x5c2 ping-pong bf16 to f32 silu_and_mul bias".
  std::string name() const {
    constexpr const char* kElements[] = {"bf16", "f16", "f32"};
    constexpr const char* kActivations[] = {"none", "silu_and_mul", "gelu_and_mul",
                                            "gelu_tanh_and_mul", "swigluoai"};
    constexpr const char* kLoads[] = {"tma", "strided"};
    std::string text = kLoads[static_cast<int>(load)];
    text += " " + std::to_string(tile_features) + "x" + std::to_string(tile_rows);
    text += "x" + std::to_string(stages);
    if (ctas > 1) text += "c" + std::to_string(ctas);
    if (ping_pong) text += " ping-pong";
    text.append(" ").append(kElements[static_cast<int>(in)]);
    text.append(" to ").append(kElements[static_cast<int>(out)]);
    text.append(" ").append(kActivations[static_cast<int>(activation)]);
    return has_bias ? text + " bias" : text;
  }

  /// The NVRTC name expression of the kernel.
  std::string kernel_name() const {
    const std::string space = "tileops::grouped_gemm::";
    const auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
    const auto boolean = [](bool value) { return std::string(value ? "true" : "false"); };
    const auto value_of = [&](const char* type, auto value) {
      return "static_cast<" + space + type + ">(" + number(value) + ")";
    };
    return space + "sm90_kernel<" + space + "Config<" + value_of("ElementType", in) + ", " +
           value_of("ElementType", out) + ", " + value_of("ActivationKind", activation) + ", " +
           boolean(has_bias) + ", " + number(tile_features) + ", " + number(tile_rows) + ", " +
           number(stages) + ", " + number(ctas) + ", " + boolean(ping_pong) + ", " +
           value_of("LoadKind", load) + ">>";
  }
};

/// The kernels that selection can reach, but for element types, activation and bias.
inline constexpr Sm90Config kSlabConfig = {.tile_rows = 64, .stages = 8};
inline constexpr Sm90Config kWideConfig = {.tile_features = 256, .tile_rows = 64, .stages = 5};
inline constexpr Sm90Config kMediumRowsConfig = {
    .tile_rows = 128, .stages = 6, .ctas = 2, .ping_pong = true};
inline constexpr Sm90Config kManyRowsConfig = {
    .tile_rows = 176, .stages = 5, .ctas = 2, .ping_pong = true};
inline constexpr Sm90Config kStridedConfig = {
    .tile_rows = 64, .stages = 8, .load = LoadKind::kStrided};
inline constexpr Sm90Config kReachableConfigs[] = {kSlabConfig, kWideConfig, kMediumRowsConfig,
                                                   kManyRowsConfig, kStridedConfig};

/// Few rows an expert: the stream of weights decides, so no cluster, and many features that share
/// the rows; slabs, which may be full, take a deeper ring of fewer. More: tiles in ping-pong, one's
/// epilogue under another's products, as large as registers allow; full slabs of 128 rows fill
/// smaller ones, and a matrix alone, of few tiles, leaves less of its last wave empty in smaller
/// ones. Measured on H200: bench/notes/hopper_gemm.md.
inline Sm90Config choose_config(const Sm90Problem& problem) {
  const auto at_most = [&](int64_t rows) { return problem.num_rows <= rows * problem.num_experts; };
  const bool masked = problem.max_m > 0;
  Sm90Config config = kManyRowsConfig;
  if (!problem.fits_tma) {
    config = kStridedConfig;
  } else if (masked && at_most(64)) {
    config = kSlabConfig;
  } else if (!masked && at_most(48)) {
    config = kWideConfig;
  } else if (at_most(masked ? 128 : 96) || problem.num_experts == 1) {
    config = kMediumRowsConfig;
  }
  config.in = problem.in;
  config.out = problem.out;
  config.activation = problem.activation;
  config.has_bias = problem.has_bias;
  return config;
}

}  // namespace tileops::grouped_gemm
