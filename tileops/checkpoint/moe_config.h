// SPDX-License-Identifier: Apache-2.0
// What a checkpoint's config.json says of its MoE layers, and how its family names their tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tileops/ops/moe/activation.h"
#include "tileops/ops/moe/routing.h"

namespace tileops::checkpoint {

/// A family of models whose layers are written alike. Names are within model.layers.N.
struct MoEFamily {
  std::string model_type;                  // of config.json
  std::vector<std::string> blocks;         // names of the MoE block
  std::string router = "gate";             // within the block
  std::array<std::string, 3> projections;  // gate, up, down of one expert; empty: only fused ones
  const char* num_experts_key;             // of config.json, as published
  const char* inter_key;
  ScoringFunc scoring_func = ScoringFunc::kSoftmax;
  bool has_correction_bias = false;
  /// Fused weights [E, H, 2F] and [E, F, H], gate and up interleaved; biases, the router's too.
  bool is_transposed_with_biases = false;
};

struct MoEConfig {
  const MoEFamily* family = nullptr;
  int64_t num_experts = 0;
  int64_t hidden = 0;
  int64_t inter = 0;         // F of an expert
  int64_t shared_inter = 0;  // of the shared experts together; 0: there are none
  Routing routing;
  GatedActivation activation = GatedActivation::silu_and_mul;
  std::string quantization;  // quant_method, "" where the checkpoint is not quantised
};

/// Reads DIR/config.json. Errors: kIo (no such file, malformed, a value that is missing or wrong),
/// kValue (a model_type that is none of the families).
MoEConfig read_moe_config(const std::string& dir);

}  // namespace tileops::checkpoint
