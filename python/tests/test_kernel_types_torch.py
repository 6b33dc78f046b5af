# SPDX-License-Identifier: Apache-2.0
"""Kernel types registered from Python on torch tensors: eager, as nodes, in compiled graphs."""
import threading
import time

import numpy
import pytest

import tileops_cpp
from test_threads import in_threads
from tileops_cpp import MGroupedLayout, moe

torch = pytest.importorskip("torch")

GEMM = "MoEGroupedGemmFwdOp"


@pytest.fixture
def seen():
    """Tensors that a grouped GEMM in torch, preferred over the library's, was given."""
    given = []

    def build(call):
        def kernel(a, b, ends, *, out, bias=None):
            given.append((a, b, ends, out))
            begin = 0
            for expert, end in enumerate(ends.tolist()):
                rows = a[begin:end].float() @ b[expert].float().T
                if call.activation:
                    gate, up = rows.chunk(2, dim=-1)
                    rows = torch.nn.functional.silu(gate) * up
                out[begin:end] = rows
                begin = end

        return kernel

    tileops_cpp.register_kernel_type(GEMM, "torch", build, preferred_over=("cpu_blocked",))
    yield given
    tileops_cpp.unregister_kernel_type(GEMM, "torch")
    torch._dynamo.reset()


def inputs(tokens=(3, 0, 4)):
    random = torch.Generator().manual_seed(3)
    make = lambda *shape: torch.randn(*shape, generator=random).bfloat16()  # noqa: E731
    ends = torch.tensor(tokens).cumsum(0).int()
    return make(sum(tokens), 12), make(3, 14, 12), make(3, 12, 7), ends


def test_eager_tensors_are_torchs(seen):
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
    given = inputs()
    y = op(*given)
    reference = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), implementation="reference")(*given)
    assert (y.float() - reference.float()).norm() < 1e-2 * reference.float().norm()
    assert seen[0][0] is given[0] and seen[1][3].data_ptr() == y.data_ptr()
    assert all(isinstance(tensor, torch.Tensor) for tensor in seen[0] + seen[1])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_graph_is_served_as_eager_calls_are(seen, backend):
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
    compiled = torch.compile(op, fullgraph=True, backend=backend)
    assert torch.equal(compiled(*inputs()), op(*inputs()))
    assert len(seen) == 4 and all(isinstance(x, torch.Tensor) for given in seen for x in given)
    assert torch.equal(compiled(*inputs((5, 1, 1))), op(*inputs((5, 1, 1))))


def test_a_node_gets_torch_tensors_whatever_the_calls_before_it_were():
    given = []

    def kernel(a, b, ends, *, out, bias=None):
        given.append({type(each) for each in (a, b, ends, out)})
        out[:] = 1

    tileops_cpp.register_kernel_type(GEMM, "ones", lambda call: kernel)
    try:
        op = moe.MoEGroupedGemmFwdOp(MGroupedLayout.contiguous(), implementation="ones")
        x, w, _, ends = inputs()
        op(x.half().numpy(), w.half().numpy(), ends.numpy())
        made = torch.ops.tileops_cpp.moe_grouped_gemm_fwd(op.key, x, w, ends, None)
    finally:
        tileops_cpp.unregister_kernel_type(GEMM, "ones")
    assert bool((made == 1).all()) and given == [{numpy.ndarray}, {torch.Tensor}]


def test_what_a_kernel_raises_in_a_node_keeps_its_text():
    def build(call):
        raise LookupError("no such kernel")

    tileops_cpp.register_kernel_type(GEMM, "broken", build)
    try:
        op = moe.MoEGroupedGemmFwdOp(MGroupedLayout.contiguous(), implementation="broken")
        x, w, _, ends = inputs()
        with pytest.raises(RuntimeError, match="LookupError: no such kernel"):
            torch.ops.tileops_cpp.moe_grouped_gemm_fwd(op.key, x, w, ends, None)
    finally:
        tileops_cpp.unregister_kernel_type(GEMM, "broken")


def test_a_kernel_sees_no_grad_tensors_alone(seen):
    op = moe.MoEGroupedGemmFwdOp(MGroupedLayout.contiguous())
    x, w, _, ends = inputs()
    with pytest.raises(ValueError, match="a requires grad"):
        op(x.requires_grad_(), w, ends)
    with torch.inference_mode():
        assert op(x, w, ends).shape == (7, 14)
    assert len(seen) == 1


def test_threads_on_a_cold_node():
    built, start = [], threading.Barrier(4)

    def build(call):
        built.append(call)
        time.sleep(0.05)  # the others wait for this kernel, and must not hold the GIL

        def kernel(a, b, ends, *, out, bias=None):
            out[:] = len(built)

        return kernel

    tileops_cpp.register_kernel_type(GEMM, "slow", build, identity=lambda call: None)
    try:
        op = moe.MoEGroupedGemmFwdOp(MGroupedLayout.contiguous(), implementation="slow")
        x, w, _, ends = inputs()

        def work(index):
            start.wait()
            for _ in range(5):
                made = torch.ops.tileops_cpp.moe_grouped_gemm_fwd(op.key, x, w, ends, None)
                assert bool((made == 1).all())

        in_threads(4, work)
    finally:
        tileops_cpp.unregister_kernel_type(GEMM, "slow")
    assert len(built) == 1
