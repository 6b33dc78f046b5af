# SPDX-License-Identifier: Apache-2.0
"""Ops that are written in Python compile like the library's: leaves are nodes, composites are traced."""
import pytest

torch = pytest.importorskip("torch")

import tileops_cpp  # noqa: E402
from test_compile import Graphs, layer  # noqa: E402
from tileops_cpp import Op, torch_ops  # noqa: E402
from written_ops import PyTwiceExpertsFwdOp  # noqa: E402

SPEC = """
namespace: pytests
PyShiftFwdOp:
  family: pytest
  summary: "x + by."
  signature:
    forall: {M: Dim, N: Dim}
    params: {by: {type: int}}
    inputs: {x: {dtype: float32, shape: "[M, N]"}}
    outputs: {y: {dtype: float32, shape: "[M, N]"}}
  workloads: [{label: small, by: 1, M: 2, N: 3, dtype_cases: [{}]}]
  roofline: {flops: "M * N"}
PyShiftByWidthFwdOp:
  family: pytest
  summary: "x + N."
  signature:
    forall: {M: Dim, N: Dim}
    inputs: {x: {dtype: float32, shape: "[M, N]"}}
    outputs: {y: {dtype: float32, shape: "[M, N]"}}
  composition: {stages: [{name: shift, op: PyShiftFwdOp, optional: true}]}
  workloads: [{label: small, M: 2, N: 3, dtype_cases: [{}]}]
  roofline: {flops: "staged('shift', 'flops', M * N)"}
"""
tileops_cpp.load_spec_text(SPEC)


class PyShiftFwdOp(Op):
    def __init__(self, by):
        super().__init__(by=by)
        self.by = by

    def forward(self, x):
        assert type(x) is torch.Tensor
        return x + self.by


class PyShiftByWidthFwdOp(Op):
    delegate_types = {"shift": PyShiftFwdOp}

    def forward(self, x):
        width = x.shape[1]
        return self.delegate_for("shift", width, by=width)(x)


@pytest.fixture
def graphs():
    torch._dynamo.reset()
    return Graphs()


def test_a_leaf_is_a_node_cold(graphs):
    op = PyShiftFwdOp(3)
    x = torch.randn(4, 5)
    assert torch.equal(graphs.compile(op)(x), x + 3)
    assert graphs.nodes(graphs.dynamo[0]) == [("pytests::pytest_py_shift_fwd", op.key)]
    torch.library.opcheck(torch_ops.overloads["pytests::pytest_py_shift_fwd"], (op.key, x))


def test_a_composite_is_its_leaves(graphs):
    op = PyTwiceExpertsFwdOp()
    x, _, w_gate_up, w_down = layer(8)
    ends = torch.tensor([2, 2, 4, 8], dtype=torch.int32)
    compiled = graphs.compile(op)
    assert torch.equal(compiled(x, w_gate_up, w_down, ends), op(x, w_gate_up, w_down, ends))
    assert [name for name, _ in graphs.nodes(graphs.dynamo[0])] == ["tileops_cpp::moe_grouped_gemm_fwd"] * 4


def test_an_identity_of_the_call_is_held_while_the_graph_is_made(graphs):
    op = PyShiftByWidthFwdOp()
    compiled = graphs.compile(op, dynamic=False)
    for width in (3, 4, 3):
        x = torch.randn(2, width)
        assert torch.equal(compiled(x), x + width)
    keys = [graphs.nodes(graph)[0][1] for graph in graphs.dynamo]
    assert keys == [held.op.key for held in op.held_delegates()] and len(keys) == 2


def test_a_target_that_serves_the_composite_whole_is_told(graphs):
    tileops_cpp.register_target_builder("whole", PyShiftByWidthFwdOp, lambda request: lambda x: x)
    tileops_cpp.set_default_target("whole")
    with pytest.raises(Exception, match="target whole serves this composite whole"):
        graphs.compile(PyShiftByWidthFwdOp())(torch.randn(2, 3))
