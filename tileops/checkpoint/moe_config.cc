// SPDX-License-Identifier: Apache-2.0
#include "tileops/checkpoint/moe_config.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "tileops/checkpoint/json_object.h"
#include "tileops/core/check.h"

namespace tileops::checkpoint {
namespace {

const std::vector<MoEFamily>& families() {
  static const auto& all = *new std::vector<MoEFamily>{
      {.model_type = "mixtral",
       .blocks = {"block_sparse_moe", "mlp"},
       .projections = {"w1", "w3", "w2"},
       .num_experts_key = "num_local_experts",
       .inter_key = "intermediate_size"},
      {.model_type = "qwen3_moe",
       .blocks = {"mlp"},
       .projections = {"gate_proj", "up_proj", "down_proj"},
       .num_experts_key = "num_experts",
       .inter_key = "moe_intermediate_size"},
      {.model_type = "deepseek_v3",
       .blocks = {"mlp"},
       .projections = {"gate_proj", "up_proj", "down_proj"},
       .num_experts_key = "n_routed_experts",
       .inter_key = "moe_intermediate_size",
       .scoring_func = ScoringFunc::kSigmoid,
       .has_correction_bias = true},
      {.model_type = "gpt_oss",
       .blocks = {"mlp"},
       .router = "router",
       .num_experts_key = "num_local_experts",
       .inter_key = "intermediate_size",
       .is_transposed_with_biases = true},
  };
  return all;
}

const MoEFamily& family_of(const JsonObject& config) {
  const std::string model_type = config.text("model_type");
  std::vector<std::string> known;
  for (const MoEFamily& family : families()) {
    if (family.model_type == model_type) return family;
    known.push_back(family.model_type);
  }
  raise(ErrorKind::kValue, "{}: model_type: expected one of {}, found {}", config.path(),
        fmt::join(known, ", "), quoted(model_type));
}

/// What a family takes for granted, where config.json says it at all.
void expect(const JsonObject& config, const char* key, const std::string& expected) {
  const std::string found = config.text(key, expected);
  TILEOPS_CHECK(ErrorKind::kIo, found == expected, "{}: {}: expected {}, found {}", config.path(),
                key, expected, quoted(found));
}

/// What config.json leaves out is as transformers' configuration of the family has it.
Routing routing_of(const JsonObject& config, const MoEFamily& family) {
  Routing routing{.top_k = config.positive("num_experts_per_tok"),
                  .scoring_func = family.scoring_func,
                  .renormalize = true};
  if (family.model_type == "qwen3_moe") {
    routing.renormalize = config.boolean("norm_topk_prob", false);
  }
  if (family.scoring_func == ScoringFunc::kSigmoid) {
    expect(config, "scoring_func", "sigmoid");
    routing.renormalize = config.boolean("norm_topk_prob", true);
    routing.num_expert_group = config.positive("n_group", 8);
    routing.topk_group = config.positive("topk_group", 4);
    routing.routed_scaling_factor = config.number("routed_scaling_factor", 2.5);
  }
  return routing;
}

GatedActivation activation_of(const JsonObject& config, const MoEFamily& family) {
  expect(config, "hidden_act", "silu");
  if (!family.is_transposed_with_biases) return GatedActivation::silu_and_mul;
  return GatedActivation::swigluoai(1.702, config.number("swiglu_limit", 7.0));
}

/// transformers 5 writes num_local_experts for families that are published with another key.
int64_t num_experts_of(const JsonObject& config, const MoEFamily& family) {
  const bool is_renamed = !config.has(family.num_experts_key) && config.has("num_local_experts");
  return config.positive(is_renamed ? "num_local_experts" : family.num_experts_key);
}

}  // namespace

MoEConfig read_moe_config(const std::string& dir) {
  const JsonObject config = JsonObject::read(dir + "/config.json");
  const MoEFamily& family = family_of(config);
  MoEConfig moe{.family = &family,
                .num_experts = num_experts_of(config, family),
                .hidden = config.positive("hidden_size"),
                .inter = config.positive(family.inter_key),
                .routing = routing_of(config, family),
                .activation = activation_of(config, family)};
  if (family.has_correction_bias) {
    moe.shared_inter = moe.inter * config.positive("n_shared_experts", 1);
  }
  if (const auto quantization = config.object("quantization_config")) {
    moe.quantization = quantization->text("quant_method", "of an unstated method");
  }
  return moe;
}

}  // namespace tileops::checkpoint
