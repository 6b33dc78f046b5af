#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call costs as PyTorch makes it, on tiny inputs: the op object, its operator, the compiled op.

    PYTHONPATH=python OMP_NUM_THREADS=1 python bench/python/node_overhead.py

Operator: torch.ops.tileops_cpp.…(key, …), leaves alone. Compiled: torch.compile(op, fullgraph=True) by
inductor, guards included. One more: what a further op instance adds to a compiled function, by graphs of
one and of eight. The first row is torch.bmm: what torch.compile costs by itself. Medians of 31 rounds, in
microseconds.
"""
import statistics

import torch
from call_overhead import fused_moe, fused_top_k, grouped_gemm, whole_us

import tileops_cpp
from tileops_cpp import torch_ops

MANY = 8


def bmm(_):
    return torch.bmm, (torch.randn(2, 2, 16), torch.randn(2, 16, 16))


def operator_of(op, arguments):
    """The op's operator as a function of its tensors; None of a composite and of torch's own."""
    if op is torch.bmm or op.spec["stages"]:
        return None
    branches = [b for b in torch_ops.branches.values() if b.op_class == op.name and not b.outs]
    made = op(*arguments)
    num_made = len(made) if isinstance(made, tuple) else 1
    branch = next(b for b in branches if len(b.fresh) == num_made)
    overload = torch_ops.overloads[branch.operator]
    return lambda *tensors: overload(op.key, *tensors)


def median_us(call, arguments):
    for _ in range(3):
        call(*arguments)
    return statistics.median(whole_us(call, arguments))


def compiled(ops):
    return torch.compile(lambda *tensors: [op(*tensors) for op in ops], fullgraph=True)


def main():
    print(f"tileops_cpp {tileops_cpp.__version__}, torch {torch.__version__}")
    for make in (bmm, grouped_gemm, fused_top_k, fused_moe):
        torch._dynamo.reset()
        op, arguments = make("torch")
        operator = operator_of(op, arguments)
        ops = [make("torch")[0] for _ in range(MANY)]
        one = median_us(compiled(ops[:1]), arguments)
        columns = {
            "op": median_us(op, arguments),
            "operator": median_us(operator, arguments) if operator else None,
            "compiled": one,
        }
        if op is not torch.bmm:  # eight equal calls of it are one
            columns["one more"] = (median_us(compiled(ops), arguments) - one) / (MANY - 1)
        row = "".join(
            f"  {name} {'-' if us is None else f'{us:.2f}':>6}" for name, us in columns.items()
        )
        print(f"{getattr(op, 'name', 'torch.bmm'):22}{row}")


if __name__ == "__main__":
    main()
