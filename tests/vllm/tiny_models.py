# SPDX-License-Identifier: Apache-2.0
"""Tiny models with the experts of Qwen3-MoE, Mixtral and GPT-OSS: random weights, bfloat16, as
transformers writes them; and their logits in float32."""
import pathlib
import sys

import torch
import transformers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from tiny_configs import make_config  # noqa: E402

VOCABULARY = 320
NUM_NEW_TOKENS = 12  # after each prompt

_SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=128,
    num_key_value_heads=2,
    head_dim=32,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)

CONFIGS = {
    "qwen3_moe": lambda: make_config(
        "qwen3_moe", 16, 4, 96, intermediate_size=192, norm_topk_prob=True, **_SIZES
    ),
    "mixtral": lambda: make_config("mixtral", 8, 2, 224, **_SIZES),
    "gpt_oss": lambda: make_config("gpt_oss", 8, 4, 160, sliding_window=32, **_SIZES),
}


def _fill(model, generator):
    """Weights that keep the size of what they multiply; routers that decide clearly, so that
    bfloat16 seldom moves a token to another expert."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5, generator=generator)
            elif weight.dim() == 1 or "bias" in name or "sinks" in name:
                weight.normal_(0, 0.5, generator=generator)
            elif "embed" in name:
                weight.normal_(0, 1, generator=generator)
            else:
                scale = 8.0 if "gate." in name or "router." in name else 1.0
                weight.normal_(0, scale * weight.shape[-1] ** -0.5, generator=generator)


def write(name, folder, seed):
    """Writes the model; no tokenizer."""
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]())
    _fill(model, torch.Generator().manual_seed(seed))
    model.to(torch.bfloat16).save_pretrained(folder)


def prompts(seed):
    """Token ids: a batch of lengths 1 to 70, the last two with a common start."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        torch.randint(3, VOCABULARY, (length,), generator=generator).tolist()
        for length in (1, 2, 7, 33, 70, 31)
    ]
    return drawn + [drawn[-1][:20] + drawn[0]]


def float32_logits(folder, sequences):
    """Logits [len(sequence), VOCABULARY] of each sequence, by transformers in float32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        return [model(torch.tensor([sequence])).logits[0] for sequence in sequences]
