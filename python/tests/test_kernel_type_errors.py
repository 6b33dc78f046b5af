# SPDX-License-Identifier: Apache-2.0
"""Kernel types registered from Python: what is refused, what their functions raise and return."""
import numpy as np
import pytest

import tileops_cpp
from kernel_types import GEMM, OWN, NumPyGemm, candidates_of, gemm, gemm_inputs, gemm_op, kernels_of, register
from tileops_cpp import MGroupedLayout, moe

__all__ = ["gemm", "register"]  # fixtures


@pytest.mark.parametrize(
    "op, name, how, text",
    [
        (GEMM, "cpu_blocked", {}, "MoEGroupedGemmFwdOp: the key cpu_blocked is taken; choose another"),
        (GEMM, "", {}, "an implementation of grouped_gemm has no key"),
        ("NoSuchOp", "x", {}, "no op is named NoSuchOp; known: "),
        ("FusedMoEFwdOp", "x", {}, "FusedMoEFwdOp: it has no kernel interface that x could implement"),
        (GEMM, "x", {"interface": "none_such"}, "x implements none_such, which the op does not declare; it declares grouped_gemm"),
        (GEMM, "x", {"devices": ["tpu"]}, "a kernel type runs on cpu or cuda, not on tpu"),
        (GEMM, "x", {"devices": []}, "x names no device type"),
        (GEMM, "x", {"devices": ["cpu", "cuda"], "archs": ["sm_90a"]}, "archs go with exactly one"),
        (GEMM, "x", {"preferred_over": ["nobody"]}, "x is preferred over nobody, which is no implementation of grouped_gemm"),
        (GEMM, "x", {"preferred_over": ["x"]}, "the preferences of x form a circle"),
        (GEMM, "x", {"general": True}, "are both general for grouped_gemm on cpu"),
    ],
)
def test_errors_of_registration(op, name, how, text):
    with pytest.raises(ValueError) as raised:
        tileops_cpp.register_kernel_type(op, name, NumPyGemm(), **how)
    assert text in str(raised.value)
    untouched = gemm_op()
    untouched(*gemm_inputs())
    assert sorted(candidates_of(untouched)) == OWN


def test_a_name_is_taken_once(gemm):
    with pytest.raises(ValueError, match="the key numpy is taken"):
        tileops_cpp.register_kernel_type(GEMM, "numpy", NumPyGemm())
    with pytest.raises(TypeError, match="build of x must be callable, got 3"):
        tileops_cpp.register_kernel_type(GEMM, "x", 3)
    with pytest.raises(TypeError, match="refusal of x must be callable"):
        tileops_cpp.register_kernel_type(GEMM, "x", NumPyGemm(), refusal="no")
    with pytest.raises(TypeError, match="devices of x must be a sequence of str, got 'cpu'"):
        tileops_cpp.register_kernel_type(GEMM, "x", NumPyGemm(), devices="cpu")


class Faulty:
    """A kernel type of which one part raises while `fault` is set."""

    def __init__(self, part):
        self.part, self.fault, self.made = part, None, NumPyGemm()

    def step(self, part):
        if self.fault is not None and part == self.part:
            raise self.fault

    def refusal(self, call):
        self.step("refusal")

    def identity(self, call):
        self.step("identity")
        return call.n

    def build(self, call):
        self.step("build")
        kernel = self.made(call)

        def run(*inputs, **named):
            self.step("kernel")
            kernel(*inputs, **named)

        return run


@pytest.mark.parametrize("kind", [LookupError, KeyboardInterrupt])
@pytest.mark.parametrize("part", ["refusal", "identity", "build", "kernel"])
def test_what_a_part_raises_passes_unchanged_and_is_retried(register, part, kind, expert_inputs):
    faulty = Faulty(part)
    register(GEMM, "faulty", faulty.build, refusal=faulty.refusal, identity=faulty.identity,
             preferred_over=("cpu_blocked",))
    op = gemm_op()
    layer = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
    for call_op in (lambda: op(*gemm_inputs()), lambda: layer(*expert_inputs)):
        faulty.fault = kind("not now")
        with pytest.raises(kind) as raised:
            call_op()
        assert raised.value is faulty.fault
        faulty.fault = None
        call_op()
    assert kernels_of(op) == ["faulty"]
    former = op.last_call()
    faulty.fault = kind("nor now")
    with pytest.raises(kind):
        op(*gemm_inputs(n=9))
    assert op.last_call().indices == former.indices and op.serving_target() == "builtin"
    faulty.fault = None
    op(*gemm_inputs(n=9))


def test_a_call_that_fails_first_leaves_nothing_settled(register):
    faulty = Faulty("kernel")
    register(GEMM, "faulty", faulty.build, preferred_over=("cpu_blocked",))
    op = gemm_op()
    faulty.fault = LookupError("not now")
    with pytest.raises(LookupError):
        op(*gemm_inputs())
    assert op.serving_target() is None and op.built_entries() == []
    with pytest.raises(RuntimeError, match="no call has completed yet"):
        op.last_call()


def test_wrong_returns_name_the_kernel_type(register):
    cases = {
        "no_kernel": (dict(build=lambda call: None), tileops_cpp.BackendError, "no_kernel built no kernel"),
        "fresh": (
            dict(build=lambda call: lambda a, b, ends, *, out, bias=None: np.zeros_like(out)),
            TypeError,
            "the kernel of fresh fills the outputs that it is given and returns None, got numpy.ndarray",
        ),
        "odd_refusal": (
            dict(build=NumPyGemm(), refusal=lambda call: 3),
            TypeError,
            "the refusal of odd_refusal returns None or the reason as a str, got int",
        ),
        "odd_identity": (dict(build=NumPyGemm(), identity=lambda call: {}), TypeError, "a parameter or identity is"),
    }
    for name, (how, kind, text) in cases.items():
        register(GEMM, name, **how)
        with pytest.raises(kind) as raised:
            gemm_op(implementation=name)(*gemm_inputs())
        assert text in str(raised.value)


def test_a_kernel_that_calls_an_op_says_so(register):
    inner = gemm_op(implementation="reference")

    def kernel(*inputs, out):
        inner(*inputs, out=out)

    register(GEMM, "nested", lambda call: kernel)
    with pytest.raises(RuntimeError, match="it called MoEGroupedGemmFwdOp, which it does not hold"):
        gemm_op(implementation="nested")(*gemm_inputs())
