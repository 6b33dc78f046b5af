# SPDX-License-Identifier: Apache-2.0
"""Tiny models of four families, with random weights."""
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    GptOssConfig,
    MixtralConfig,
    Qwen3MoeConfig,
)

VOCABULARY = 97
_COMMON = dict(
    vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256
)

CONFIGS = {
    "mixtral": lambda: MixtralConfig(
        intermediate_size=48, num_local_experts=4, num_experts_per_tok=2, num_key_value_heads=2, **_COMMON
    ),
    "qwen3_moe": lambda: Qwen3MoeConfig(
        intermediate_size=48,
        moe_intermediate_size=40,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=True,
        head_dim=16,
        num_key_value_heads=2,
        **_COMMON,
    ),
    "deepseek_v3": lambda: DeepseekV3Config(
        intermediate_size=48,
        moe_intermediate_size=40,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        q_lora_rank=32,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=16,
        num_key_value_heads=4,
        **_COMMON,
    ),
    "gpt_oss": lambda: GptOssConfig(
        intermediate_size=48,
        num_local_experts=4,
        num_experts_per_tok=2,
        head_dim=16,
        sliding_window=32,
        num_key_value_heads=2,
        **_COMMON,
    ),
}


def make_model(family, dtype=torch.bfloat16, seed=0, **how):
    """A model whose experts move the logits, and whose router is sure of its choice."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[family](), dtype=dtype, **how).eval()
    for name, parameter in model.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(parameter, std=0.1)
        elif "experts" in name:
            torch.nn.init.normal_(parameter, std=0.05)
        elif name.endswith(("gate.weight", "router.weight")):
            torch.nn.init.normal_(parameter, std=0.5)
    return model


def make_tokens(shape=(3, 17), seed=1):
    return torch.randint(0, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def experts_modules(model):
    return [module for module in model.modules() if hasattr(module, "is_transposed")]


def logits_and_routes(model, tokens):
    """Logits `[B, T, V]` in float32, and each token's routes of all layers, sorted, `[B, T, layers * K]`."""
    routes = []
    hooks = [
        module.register_forward_pre_hook(lambda _, args: routes.append(args[1].sort(-1).values))
        for module in experts_modules(model)
    ]
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits.float()
    for hook in hooks:
        hook.remove()
    return logits, torch.cat(routes, dim=-1).reshape(*tokens.shape, -1)


def largest_difference(first, second):
    """Of two runs' logits, where both took the same routes so far; most tokens must have."""
    same = (first[1] == second[1]).all(-1).int().cummin(-1).values.bool()
    assert same.float().mean().item() > 0.6
    return (first[0] - second[0])[same].abs().max().item()
