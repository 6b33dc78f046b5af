# SPDX-License-Identifier: Apache-2.0
"""serve.py OUT FOLDER...: runs each model in vLLM on the prompts of tiny_models, eagerly and
compiled, and writes tokens and logits to OUT, by (name, mode); TILEOPS_VLLM as it is set."""
import os
import pathlib
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import tiny_models
import torch
import vllm


def logits_of(logprobs):
    """The whole row of logits of one position, which vLLM gives by token id."""
    row = torch.full((tiny_models.VOCABULARY,), float("nan"))
    for token, entry in logprobs.items():
        row[token] = entry.logprob
    return row


def run_model(llm):
    """For each prompt: prompt + new tokens, and the logits of all positions but the last."""
    sampling = vllm.SamplingParams(
        temperature=0,
        max_tokens=tiny_models.NUM_NEW_TOKENS,
        ignore_eos=True,
        logprobs=tiny_models.VOCABULARY,
        prompt_logprobs=tiny_models.VOCABULARY,
        detokenize=False,
    )
    prompts = [{"prompt_token_ids": ids} for ids in tiny_models.prompts(seed=7)]
    sequences, logits = [], []
    for answer in llm.generate(prompts, sampling, use_tqdm=False):
        new = answer.outputs[0]
        sequences.append(list(answer.prompt_token_ids) + list(new.token_ids))
        rows = answer.prompt_logprobs[1:] + new.logprobs
        logits.append(torch.stack([logits_of(row) for row in rows]))
    return sequences, logits


def experts_of(llm):
    """Name of the class that computes each MoE layer's experts."""
    names = llm.apply_model(
        lambda model: [
            type(module.quant_method.moe_kernel.fused_experts).__name__
            for module in model.modules()
            if hasattr(module, "w13_weight")
        ]
    )
    return names[0]


def main(out, folders):
    runs = {}
    for folder in map(pathlib.Path, folders):
        for mode in ("eager", "compiled"):
            llm = vllm.LLM(
                str(folder),
                skip_tokenizer_init=True,
                dtype="bfloat16",
                max_model_len=128,
                max_num_seqs=16,
                max_logprobs=tiny_models.VOCABULARY,
                logprobs_mode="raw_logits",
                enable_prefix_caching=False,
                enforce_eager=mode == "eager",
            )
            sequences, logits = run_model(llm)
            runs[folder.name, mode] = {
                "sequences": sequences,
                "logits": logits,
                "experts": experts_of(llm),
                "mode": llm.llm_engine.vllm_config.compilation_config.mode.name,
            }
            del llm
    torch.save(runs, out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
