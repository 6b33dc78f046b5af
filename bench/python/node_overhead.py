#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call costs as PyTorch makes it, on tiny inputs: the op object, its operator, the compiled op.

    PYTHONPATH=python OMP_NUM_THREADS=1 python bench/python/node_overhead.py

Operator: torch.ops.tileops_cpp.…(key, …), leaves alone. Compiled: torch.compile(op, fullgraph=True) by
inductor, guards included. Medians of 31 rounds, in microseconds.
"""
import statistics

import torch
from call_overhead import fused_moe, fused_top_k, grouped_gemm, whole_us

import tileops_cpp
from tileops_cpp import torch_ops

MAKERS = (grouped_gemm, fused_top_k, fused_moe)


def operator_of(op, arguments):
    """The op's operator as a function of its tensors; None of a composite."""
    if op.spec["stages"]:
        return None
    branches = [b for b in torch_ops.branches.values() if b.op_class == op.name and not b.outs]
    made = op(*arguments)
    num_made = len(made) if isinstance(made, tuple) else 1
    branch = next(b for b in branches if len(b.fresh) == num_made)
    overload = torch_ops.overloads[branch.operator]
    return lambda *tensors: overload(op.key, *tensors)


def main():
    print(f"tileops_cpp {tileops_cpp.__version__}, torch {torch.__version__}")
    for make in MAKERS:
        op, arguments = make("torch")
        ways = {"op": op, "operator": operator_of(op, arguments), "compiled": torch.compile(op, fullgraph=True)}
        row = f"{op.name:22}"
        for name, call in ways.items():
            if call is None:
                row += f"  {name} {'-':>6}"
                continue
            call(*arguments)
            row += f"  {name} {statistics.median(whole_us(call, arguments)):6.2f}"
        print(row)


if __name__ == "__main__":
    main()
