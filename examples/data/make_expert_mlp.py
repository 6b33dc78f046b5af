#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes expert_mlp.safetensors: inputs of MoEExpertMLPFwdOp, and its output as PyTorch computes it.

The rows of six experts lie one after another (tight, physical_psum); expert 2 has none. Weights and
rows are bfloat16, the arithmetic is PyTorch's float32, rounded to bfloat16 once, at the end.

    python3 examples/data/make_expert_mlp.py     needs torch and safetensors
"""
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HIDDEN, INTER = 96, 72
ROWS = [7, 12, 0, 1, 14, 3]  # of each expert


def experts(rows, w_gate_up, w_down, ends):
    out = torch.empty(rows.shape)
    begin = 0
    for expert, end in enumerate(ends):
        x = rows[begin:end].float()
        gate, up = F.linear(x, w_gate_up[expert].float()).chunk(2, dim=-1)
        out[begin:end] = F.linear(F.silu(gate) * up, w_down[expert].float())
        begin = end
    return out


def main():
    generator = torch.Generator().manual_seed(20)

    def normal(*shape, scale):
        return (torch.randn(*shape, generator=generator) * scale).to(torch.bfloat16)

    ends = torch.tensor(ROWS).cumsum(0)
    expert_input = normal(sum(ROWS), HIDDEN, scale=1.0)
    w_gate_up = normal(len(ROWS), 2 * INTER, HIDDEN, scale=HIDDEN**-0.5)
    w_down = normal(len(ROWS), HIDDEN, INTER, scale=INTER**-0.5)
    out = experts(expert_input, w_gate_up, w_down, ends.tolist())
    save_file(
        {
            "expert_input": expert_input,
            "w_gate_up": w_gate_up,
            "w_down": w_down,
            "layout_metadata": ends.to(torch.int32),
            "expected.out": out.to(torch.bfloat16),
        },
        str(pathlib.Path(__file__).with_name("expert_mlp.safetensors")),
        metadata={
            "op": "MoEExpertMLPFwdOp",
            "params": json.dumps(
                {
                    "layout": "contiguous{packing: tight, metadata_kind: physical_psum}",
                    "activation": "silu_and_mul",
                }
            ),
            "expected_by": f"PyTorch {torch.__version__.split('+')[0]}",
        },
    )


if __name__ == "__main__":
    main()
