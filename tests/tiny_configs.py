# SPDX-License-Identifier: Apache-2.0
"""Tiny configurations of MoE families, for python/tests and tests/vllm."""
import transformers

# Family -> its class, and how it calls the number of experts and an expert's width.
_FAMILIES = {
    "mixtral": ("MixtralConfig", "num_local_experts", "intermediate_size"),
    "qwen3_moe": ("Qwen3MoeConfig", "num_experts", "moe_intermediate_size"),
    "deepseek_v3": ("DeepseekV3Config", "n_routed_experts", "moe_intermediate_size"),
    "gpt_oss": ("GptOssConfig", "num_local_experts", "intermediate_size"),
}


def make_config(family, num_experts, top_k, inter, **others):
    """Two layers of four heads; `others` as the family's class names them."""
    name, experts_name, inter_name = _FAMILIES[family]
    sizes = {experts_name: num_experts, "num_experts_per_tok": top_k, inter_name: inter}
    return getattr(transformers, name)(
        num_hidden_layers=2, num_attention_heads=4, **sizes, **others
    )
