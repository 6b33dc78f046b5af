#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy generation by transformers, with its own MoE blocks and with the library's: equal tokens.

    python3 tests/torch/greedy_generation.py CALL_SERVER

The model is the trained tests/checkpoint/data/qwen3_moe_trained; prompts are parts of its text. It
computes in float32, but its MoE blocks take and give bfloat16, as the library's do.
"""
import pathlib
import sys

import torch
import transformers
from server import Server

CHECKPOINT = pathlib.Path(__file__).resolve().parent.parent / "checkpoint/data/qwen3_moe_trained"
PROMPTS = [
    '"License" shall mean the terms and conditions for use',
    "You may reproduce and distribute copies of the",
    "Unless required by applicable law or agreed to in writing",
    "This License does not grant permission to use",
    "   Grant of Patent License. Subject to the terms",
]
NEW_TOKENS = 64  # with a prompt no more than the windows that the model was trained on
TOP_SHARE = 1.5  # of routes: the busiest expert's, times that of a uniform routing, at least


def load():
    model = transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32)
    model.config._experts_implementation = "eager"
    return model.eval()


def moe_blocks(model):
    return {index: layer.mlp for index, layer in enumerate(model.model.layers) if hasattr(layer.mlp, "experts")}


def replace_blocks(model, compute):
    """Lets compute(index, hidden) [T, H] -> [T, H], bfloat16, be every MoE block of the model."""
    for index, block in moe_blocks(model).items():
        def forward(hidden, index=index):
            return compute(index, hidden.flatten(0, 1).bfloat16()).float().reshape(hidden.shape)

        block.forward = forward


def transformers_blocks(model):
    forwards = {index: block.forward for index, block in moe_blocks(model).items()}
    return lambda index, hidden: forwards[index](hidden.float()[None])[0].bfloat16()


def library_blocks(server, calls):
    def compute(index, hidden):
        calls[index] = calls.get(index, 0) + 1
        return server.layer(CHECKPOINT, index, hidden)

    return compute


def count_routes(model):
    """Counts of the experts that each MoE block chooses from now on."""
    counts = {}
    for index, block in moe_blocks(model).items():
        counts[index] = torch.zeros(model.config.num_experts, dtype=torch.long)

        def add(_module, _args, output, index=index):
            counts[index] += torch.bincount(output[-1].flatten(), minlength=len(counts[index]))

        block.gate.register_forward_hook(add)
    return counts


def generate(model, prompt):
    """(tokens that follow the prompt, logits of each, [NEW_TOKENS, vocabulary])."""
    tokens = torch.tensor([list(prompt.encode("ascii"))])
    out = model.generate(
        tokens, do_sample=False, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, pad_token_id=0,
        attention_mask=torch.ones_like(tokens), output_logits=True, return_dict_in_generate=True)
    return out.sequences[0, tokens.shape[1]:], torch.cat(out.logits).float()


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    theirs, ours = load(), load()
    counts, calls = count_routes(theirs), {}
    replace_blocks(theirs, transformers_blocks(theirs))
    failed = 0
    with Server(sys.argv[1]) as server, torch.no_grad():
        replace_blocks(ours, library_blocks(server, calls))
        for prompt in PROMPTS:
            (want, want_logits), (got, got_logits) = generate(theirs, prompt), generate(ours, prompt)
            best = want_logits.topk(2).values
            margin = (best[:, 0] - best[:, 1]).min()
            same = torch.equal(got, want)
            failed += not same
            print(f"{'equal' if same else 'UNEQUAL'}: {len(got)} tokens after {prompt!r}; least margin {margin:.3f}, "
                  f"logits differ by at most {(got_logits - want_logits).abs().max():.3f}")
            if not same:
                print(f"  {bytes(want.tolist())!r}\n  {bytes(got.tolist())!r}")
    for index, count in counts.items():
        share = count.max() / count.sum() * len(count)
        print(f"layer {index}: {calls.get(index, 0)} calls; the busiest of {len(count)} experts has {share:.1f} of a "
              f"uniform routing's share, {(count == 0).sum()} have none")
        failed += share < TOP_SHARE or calls.get(index) != len(PROMPTS) * NEW_TOKENS
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
