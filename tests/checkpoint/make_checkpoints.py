#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/checkpoint/data: a tiny checkpoint of each MoE family, as transformers saves it.

    python3 tests/checkpoint/make_checkpoints.py      needs torch and transformers 5

Beside each checkpoint, hidden.N.safetensors holds what layer N's MoE block takes (`hidden`, bfloat16)
and what the block gives on it in float32, with the bfloat16 weights of the file (`expected`; where
there are shared experts, their part and the routed one too).
"""
import copy
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).resolve().parent / "data"
BATCH, LENGTH, DTYPE = 2, 9, torch.bfloat16
COMMON = dict(
    vocab_size=16, hidden_size=40, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
    head_dim=8, max_position_embeddings=32, bos_token_id=None, eos_token_id=None, pad_token_id=None,
)


def mixtral():
    return transformers.MixtralConfig(**COMMON, intermediate_size=24, num_local_experts=4, num_experts_per_tok=2)


def qwen3_moe(**changes):
    sizes = dict(intermediate_size=32, moe_intermediate_size=16, num_experts=6, num_experts_per_tok=3)
    return transformers.Qwen3MoeConfig(**COMMON | sizes | changes)


def deepseek_v3():
    return transformers.DeepseekV3Config(
        **COMMON | {"num_key_value_heads": 2, "num_hidden_layers": 3}, intermediate_size=32, moe_intermediate_size=12,
        n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3, n_group=4, topk_group=2, norm_topk_prob=True,
        routed_scaling_factor=2.5, first_k_dense_replace=1, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4,
        qk_nope_head_dim=4, v_head_dim=8, num_mtp_layers=0,
    )


def gpt_oss():
    return transformers.GptOssConfig(**COMMON, intermediate_size=28, num_local_experts=5, num_experts_per_tok=2)


# Configuration, and the folders that its model is saved to. The original format has a tensor an expert,
# but for GPT-OSS; what each layer takes and gives lies in the first folder.
CHECKPOINTS = [
    (mixtral(), {
        "mixtral": {"max_shard_size": "40KB"},
        "mixtral_fused": {"save_original_format": False},
    }),
    (qwen3_moe(mlp_only_layers=[0], norm_topk_prob=True), {"qwen3_moe": {}}),
    (qwen3_moe(), {"qwen3_moe_fused": {"save_original_format": False, "max_shard_size": "40KB"}}),
    (deepseek_v3(), {
        "deepseek_v3": {"max_shard_size": "50KB"},
        "deepseek_v3_fused": {"save_original_format": False},
    }),
    (gpt_oss(), {"gpt_oss": {"max_shard_size": "60KB"}}),
]


def randomize(block):
    """Weights that make every part of the result matter; those of GPT-OSS reach its limit."""
    with torch.no_grad():
        for name, parameter in block.named_parameters():
            scale = 0.5 if name.endswith("bias") else parameter.shape[-1] ** -0.5
            parameter.normal_(0, scale * (4 if "GptOss" in type(block).__name__ and "gate_up" in name else 1))
    if hasattr(block, "shared_experts"):
        block.gate.e_score_correction_bias = torch.empty(block.gate.num_experts).normal_(0, 0.2)


def moe_blocks(model):
    layers = enumerate(model.model.layers)
    return {index: layer.mlp for index, layer in layers if hasattr(layer.mlp, "experts")}


def expected_of(block, hidden):
    block, hidden = copy.deepcopy(block).float(), hidden.float()
    out = block(hidden)
    out = out[0] if isinstance(out, tuple) else out
    if not hasattr(block, "shared_experts"):
        return {"expected": out}
    shared = block.shared_experts(hidden)
    return {"expected": out, "expected.shared_output": shared, "expected.routed_output": out - shared}


def write_hidden(folder, index, block, hidden):
    """hidden.N.safetensors of layer N."""
    tensors = {"hidden": hidden} | expected_of(block, hidden)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    by = f"transformers {transformers.__version__} {type(block).__name__}, float32"
    save_file(tensors, folder / f"hidden.{index}.safetensors", {"expected_by": by})


def write(config, folders):
    config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=DTYPE).eval()
    blocks = moe_blocks(model)
    for block in blocks.values():
        randomize(block)
    for folder, options in folders.items():
        shutil.rmtree(DATA / folder, ignore_errors=True)
        model.save_pretrained(DATA / folder, **options)
        (DATA / folder / "generation_config.json").unlink(missing_ok=True)
    for index, block in blocks.items():
        hidden = torch.randn(BATCH, LENGTH, config.hidden_size).to(DTYPE)
        write_hidden(DATA / next(iter(folders)), index, block, hidden)


def main():
    with torch.no_grad():
        for seed, (config, folders) in enumerate(CHECKPOINTS):
            torch.manual_seed(seed)
            write(config, folders)
    for path in DATA.glob("*/*"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()
