# SPDX-License-Identifier: Apache-2.0
"""Tiny models of four families, with random weights."""
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from tiny_configs import make_config  # noqa: E402

VOCABULARY = 97
_SIZES = dict(vocab_size=VOCABULARY, hidden_size=64, max_position_embeddings=256)
_QWEN3_MOE = dict(intermediate_size=48, norm_topk_prob=True, head_dim=16, num_key_value_heads=2)
_DEEPSEEK_V3 = dict(
    intermediate_size=48,
    n_group=2,
    topk_group=1,
    first_k_dense_replace=1,
    q_lora_rank=32,
    kv_lora_rank=16,
    qk_rope_head_dim=8,
    qk_nope_head_dim=8,
    v_head_dim=16,
    num_key_value_heads=4,
)
_GPT_OSS = dict(head_dim=16, sliding_window=32, num_key_value_heads=2)

CONFIGS = {
    "mixtral": lambda: make_config("mixtral", 4, 2, 48, num_key_value_heads=2, **_SIZES),
    "qwen3_moe": lambda: make_config("qwen3_moe", 8, 3, 40, **_QWEN3_MOE, **_SIZES),
    "deepseek_v3": lambda: make_config("deepseek_v3", 8, 2, 40, **_DEEPSEEK_V3, **_SIZES),
    "gpt_oss": lambda: make_config("gpt_oss", 4, 2, 48, **_GPT_OSS, **_SIZES),
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
