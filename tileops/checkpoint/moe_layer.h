// SPDX-License-Identifier: Apache-2.0
// One MoE layer of a Hugging Face checkpoint, ready for FusedMoEFwdOp or FusedMoESharedExpertFwdOp.
//
//   const MoELayerCheckpoint layer = open_moe_layer("/models/Qwen3-30B-A3B", 7);
//   const FusedMoEFwdOp op(layer.routing, {.activation = layer.activation});
//   const Tensor y = op(hidden, layer.gating_logits(hidden), layer.w_gate_up, layer.w_down,
//                       {layer.b_gate_up, layer.b_down, layer.correction_bias}).output;
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tileops/core/tensor.h"
#include "tileops/core/value.h"
#include "tileops/ops/moe/activation.h"
#include "tileops/ops/moe/routing.h"

namespace tileops {

/// A layer's tensors, as the ops take them, and the parameters that they need. Tensors that the
/// files hold in a layout of the ops are views of the mapped files, the others are copies.
struct MoELayerCheckpoint {
  std::string model_type;  // mixtral, qwen3_moe, deepseek_v3, gpt_oss
  int64_t layer = 0;
  Routing routing;
  GatedActivation activation = GatedActivation::silu_and_mul;

  Tensor router_weight;     // [E, H], as the file has it
  Tensor router_bias;       // [E]; GPT-OSS
  Tensor w_gate_up;         // [E, 2F, H], rows as the activation orders them
  Tensor w_down;            // [E, H, F]
  Tensor b_gate_up;         // [E, 2F]; GPT-OSS
  Tensor b_down;            // [E, H]; GPT-OSS
  Tensor correction_bias;   // [E] float32; DeepSeek-V3
  Tensor shared_w_gate_up;  // [2S, H], the shared experts side by side; DeepSeek-V3
  Tensor shared_w_down;     // [H, S]; DeepSeek-V3

  /// Parameters of both ops, by the spec's names.
  Params params() const;
  /// The router's logits of hidden states [T, H] on the CPU: [T, E] float32, accumulated in
  /// float32; a token's do not depend on the other tokens. Errors: kShape, kDType, kDevice.
  Tensor gating_logits(const Tensor& hidden) const;
};

struct LoadProgress {
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;  // of the tensors that are copied
};

/// Of weights that the file holds whole, but transposed (GPT-OSS).
enum class TransposedWeights : uint8_t {
  kView,  // strided views, without a copy; CPU kernels take many times longer to read them
  kCopy,  // contiguous copies, made once
};

struct LoadOptions {
  TransposedWeights transposed = TransposedWeights::kView;
  std::function<void(const LoadProgress&)> progress = nullptr;  // told after each copy
};

/// Reads a layer of DIR: config.json, and model.safetensors or the shards that
/// model.safetensors.index.json names. Families: Mixtral, Qwen3-MoE, DeepSeek-V3, GPT-OSS, with a
/// tensor an expert or fused ones, in float16 or bfloat16. Every tensor is checked before any is
/// copied.
/// Errors: kIo (a file or tensor that is missing, malformed or quantised; one line: file, tensor,
///         expected, found), kValue (another model_type); kOutOfMemory.
/// Source: transformers 5, models/{mixtral,qwen3_moe,deepseek_v3,gpt_oss}, conversion_mapping.py.
MoELayerCheckpoint open_moe_layer(const std::string& dir, int64_t layer,
                                  const LoadOptions& options = {});

}  // namespace tileops
