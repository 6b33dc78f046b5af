#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/checkpoint/data/qwen3_moe_trained: a small Qwen3-MoE that knows a text by heart.

    python3 tests/checkpoint/train_qwen3_moe.py      a few minutes; needs torch and transformers 5

The text is one that Debian's base-files ships, a token a byte. No loss balances the experts, so that
routing is what training made of it: learned, and skewed. Beside the checkpoint, hidden.N.safetensors
holds what layer N's MoE block takes on a part of the text, and what it gives in float32.
"""
import argparse
import pathlib
import shutil

import torch
import transformers
from make_checkpoints import DATA, DTYPE, moe_blocks, write_hidden

TEXT = pathlib.Path("/usr/share/common-licenses/Apache-2.0")
FOLDER = "qwen3_moe_trained"
BATCH, LENGTH = 16, 128


def tokens_of(text):
    return torch.tensor(list(text.encode("ascii")))


def new_model():
    config = transformers.Qwen3MoeConfig(
        vocab_size=128, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, intermediate_size=64, moe_intermediate_size=24, num_experts=16, num_experts_per_tok=4,
        norm_topk_prob=True, mlp_only_layers=[0], max_position_embeddings=1024, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=None, pad_token_id=None)
    config._experts_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def train(model, tokens, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        begins = torch.randint(len(tokens) - LENGTH, (BATCH,))
        batch = torch.stack([tokens[begin : begin + LENGTH] for begin in begins.tolist()])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


def write_layers(model, tokens):
    """What each MoE block of the saved model takes while it reads the text."""
    taken = {}
    hooks = [block.register_forward_pre_hook(lambda _, args, index=index: taken.update({index: args[0]}))
             for index, block in moe_blocks(model).items()]
    model(input_ids=tokens[: 2 * LENGTH].reshape(2, LENGTH))
    for hook in hooks:
        hook.remove()
    for index, block in moe_blocks(model).items():
        write_hidden(DATA / FOLDER, index, block, taken[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    torch.set_num_threads(1)  # so small a model: threads would wait for each other
    torch.manual_seed(0)
    tokens = tokens_of(TEXT.read_text())
    model = new_model()
    train(model.train(), tokens, args.steps)
    shutil.rmtree(DATA / FOLDER, ignore_errors=True)
    model.to(DTYPE).save_pretrained(DATA / FOLDER, save_original_format=False)
    (DATA / FOLDER / "generation_config.json").unlink(missing_ok=True)
    with torch.no_grad():
        write_layers(model.eval(), tokens)
    for path in (DATA / FOLDER).glob("*"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()
