#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call from Python costs over the call in C++, on tiny inputs.

    PYTHONPATH=python OMP_NUM_THREADS=1 python bench/python/call_overhead.py [--frameworks torch,numpy]

Whole: the time of op(...) in Python. Inside: what the record of the same calls says of the C++ call
(elapsed_us). Over: the difference. Medians of 31 rounds.
"""
import argparse
import statistics
import time

import numpy as np

import tileops_cpp
from tileops_cpp import MGroupedLayout, moe

ROUNDS, CALLS = 31, 500


def random(framework, *shape, dtype="bfloat16"):
    values = np.random.default_rng(1).normal(size=shape) * 0.3
    if framework == "torch":
        import torch

        return torch.tensor(values, dtype=getattr(torch, dtype))
    return values.astype("float16" if dtype == "bfloat16" else dtype)


def grouped_gemm(framework):
    op = moe.MoEGroupedGemmFwdOp(MGroupedLayout.contiguous())
    ends = random(framework, 2, dtype="int32")
    ends[0], ends[1] = 1, 2
    return op, (random(framework, 2, 16), random(framework, 2, 16, 16), ends)


def fused_top_k(framework):
    return moe.FusedTopKFwdOp(2), (random(framework, 1, 8, dtype="float32"),)


def fused_moe(framework):
    weights = random(framework, 8, 32, 16), random(framework, 8, 16, 16)
    hidden, gating = random(framework, 1, 16), random(framework, 1, 8, dtype="float32")
    return moe.FusedMoEFwdOp(2), (hidden, gating, *weights)


def whole_us(op, arguments):
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            op(*arguments)
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    return rounds


def inside_us(op, arguments):
    tileops_cpp.set_call_timing(True)
    times = []
    for _ in range(ROUNDS * CALLS // 10):
        op(*arguments)
        times.append(op.last_call().elapsed_us)
    tileops_cpp.set_call_timing(False)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", default="torch,numpy")
    for framework in parser.parse_args().frameworks.split(","):
        for make in (grouped_gemm, fused_top_k, fused_moe):
            op, arguments = make(framework)
            op(*arguments)
            rounds = whole_us(op, arguments)
            whole, inside = statistics.median(rounds), statistics.median(inside_us(op, arguments))
            print(
                f"{framework:6} {op.name:20} whole {whole:6.2f} us (fastest round {min(rounds):.2f})"
                f"  inside {inside:6.2f}  over {whole - inside:5.2f}"
            )


if __name__ == "__main__":
    main()
