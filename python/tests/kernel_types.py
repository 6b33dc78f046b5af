# SPDX-License-Identifier: Apache-2.0
"""A grouped GEMM in NumPy as a kernel type, and what the tests of kernel types share."""
import numpy as np
import pytest

import definition
import tileops_cpp
from definition import rng
from tileops_cpp import MGroupedLayout, moe

GEMM = "MoEGroupedGemmFwdOp"
OWN = ["cpu_blocked", "reference", "sm90_strided", "sm90_weights_on_m"]


class NumPyGemm:
    """The grouped GEMM in float64, of contiguous rows by end rows; it keeps what it is asked and given."""

    def __init__(self):
        self.built, self.calls = [], []

    def refusal(self, call):
        if call.layout.constructor != "contiguous":
            return f"serves contiguous rows, got {call.layout.constructor}"

    def __call__(self, call):
        self.built.append(call)
        activation = definition.silu_and_mul if call.activation else lambda rows: rows

        def kernel(a, b, ends, *, out, bias=None):
            self.calls.append((a, b, ends, bias, out))
            begin = 0
            for expert, end in enumerate(ends):
                rows = a[begin:end].astype(np.float64) @ b[expert].astype(np.float64).T
                out[begin:end] = activation(rows if bias is None else rows + bias[expert].astype(np.float64))
                begin = end

        return kernel


@pytest.fixture
def register():
    """register_kernel_type that is taken back after the test."""
    registered = []

    def call(op, name, build, **how):
        tileops_cpp.register_kernel_type(op, name, build, **how)
        registered.append((op, name))

    yield call
    for op, name in registered:
        tileops_cpp.unregister_kernel_type(op, name)


@pytest.fixture
def gemm(register):
    """A NumPyGemm that is preferred over the CPU's own."""
    made = NumPyGemm()
    register(GEMM, "numpy", made, refusal=made.refusal, preferred_over=("cpu_blocked",))
    return made


def gemm_op(**options):
    return moe.MoEGroupedGemmFwdOp(MGroupedLayout.contiguous(), **options)


def gemm_inputs(seed=1, rows=(3, 0, 4), n=6, k=8):
    random = rng(seed)
    a = random.normal(size=(sum(rows), k)).astype(np.float16)
    b = random.normal(size=(len(rows), n, k)).astype(np.float16)
    return a, b, np.cumsum(rows).astype(np.int32)


def kernels_of(op):
    return [implementation for _, implementation, _ in op.last_call().kernels]


def candidates_of(op):
    (choice,) = op.explain().choices
    return {each.key: (each.chosen, each.reason) for each in choice.candidates}
