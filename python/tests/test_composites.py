# SPDX-License-Identifier: Apache-2.0
"""Ops written in Python: the same guarantees as the library's own."""
import gc
import json
import weakref

import numpy as np
import pytest

import definition
import tileops_cpp
from conftest import SPEC_FILE, ExpertInputs
from tileops_cpp import MGroupedLayout, Op, moe
from written_ops import (
    PyQuarterFwdOp,
    PySmoothFwdOp,
    PySplitFwdOp,
    PyTwiceExpertsFwdOp,
    PyWindowMeanFwdOp,
    window_mean,
)


@pytest.fixture
def x():
    return definition.rng(5).normal(size=(4, 16)).astype(np.float32)


def smooth(x, window=2):
    return window_mean(window_mean(x, window), 2 * window)


def test_the_spec_file_and_the_classes_agree():
    assert tileops_cpp.validate_spec(SPEC_FILE) == []


def test_a_composition_that_differs_from_the_classes_is_said(tmp_path):
    file = tmp_path / "ops.yaml"
    file.write_text(SPEC_FILE.read_text().replace("{name: narrow", "{name: thin"))
    found = [d for d in tileops_cpp.validate_spec(file) if d.entry == "PySmoothFwdOp"]
    assert found and any("narrow" in str(d) and "thin" in str(d) for d in found)
    assert found[0].line > 0 and found[0].code.startswith("S")


def test_a_leaf(x):
    op = PyWindowMeanFwdOp(3)
    y = op(x)
    assert type(y) is np.ndarray and np.array_equal(y, window_mean(x, 3))
    assert op.params == {"window": 3} and op.last_call().index("N") == 16
    assert (op.serving_target(), op.eval_roofline().flops) == ("builtin", 2 * 4 * 16)
    out = np.empty_like(x)
    assert op(x, y=out) is out and np.array_equal(out, y)
    assert op(x, out=out) is out


def test_a_composite_and_its_record(x):
    op = PySmoothFwdOp(2)
    assert np.array_equal(op(x), smooth(x))
    record = op.last_call()
    assert {stage: len(records) for stage, records in record.stages.items()} == {"narrow": 1, "wide": 1}
    assert record.stages["wide"][0].value("window") == 4
    assert op.eval_roofline().flops == 2 * 2 * 4 * 16
    assert [(h.stage, h.identity, h.op) for h in op.held_delegates()] == [
        ("narrow", None, op.narrow), ("wide", None, op.wide)]


def test_the_result_is_the_object_that_forward_returned(x):
    made = []

    class PyWindowMeanKept(PyWindowMeanFwdOp):
        spec_name = "PyWindowMeanFwdOp_kept"

        def forward(self, x, *, y=None):
            made.append(super().forward(x, y=y))
            return made[-1]

    tileops_cpp.load_spec_text(
        "namespace: pytests\n" + SPEC_FILE.read_text().split("\n\n")[1].replace(
            "PyWindowMeanFwdOp", "PyWindowMeanFwdOp_kept"), "kept")
    assert PyWindowMeanKept(2)(x) is made[0]


def test_a_sub_op_is_built_once_for_an_identity(x):
    op = PyQuarterFwdOp()
    for columns in (16, 8, 16):
        assert np.array_equal(op(x[:, :columns].copy()), window_mean(x[:, :columns], columns // 4))
    assert [h.identity for h in op.held_delegates()] == [4, 2]
    held = op.held_delegates()[0].op
    assert op.delegate_for("mean", 4, window=99) is held and held.params == {"window": 4}


def test_a_held_sub_op_lives_with_its_composite_alone():
    op = PyQuarterFwdOp()
    held = weakref.ref(op.delegate_for("mean", ("a", 1.5, True), window=3))
    gc.collect()
    assert held() is op.held_delegates()[0].op
    assert op.held_delegates()[0].identity == ["a", 1.5, True]
    del op
    gc.collect()
    tileops_cpp.target_names()
    assert held() is None


def test_an_injected_sub_op_is_held_as_it_is(x):
    wide = PyWindowMeanFwdOp(1, target="builtin")
    op = PySmoothFwdOp(2, wide)
    assert op.wide is wide
    assert np.array_equal(op(x), window_mean(x, 2))
    del op
    gc.collect()
    assert np.array_equal(wide(x), x)


def test_sub_ops_inherit_the_target():
    tileops_cpp.register_target_builder("t", PyWindowMeanFwdOp, lambda request: None)
    op = PySmoothFwdOp(2, target="t")
    assert (op.target, op.narrow.target) == ("t", "t")
    assert PySmoothFwdOp(2).narrow.target is None


def test_the_rules_of_holding():
    op = PySmoothFwdOp()
    with pytest.raises(RuntimeError, match="PySmoothFwdOp: no stage other; declared: narrow, wide"):
        op.delegate_for("other", None)
    with pytest.raises(RuntimeError, match=r"offered as \(narrow, 1\) is held already as \(narrow, None\)"):
        op.delegate_for("narrow", 1, op.narrow)
    with pytest.raises(RuntimeError, match="stage narrow holds PyWindowMeanFwdOp, and was given FusedMoEFwdOp"):
        op.delegate_for("narrow", 2, moe.FusedMoEFwdOp(1))
    with pytest.raises(ValueError, match="window"):
        op.delegate_for("narrow", 3, window=0)
    assert len(op.held_delegates()) == 2
    with pytest.warns(RuntimeWarning, match=r"\(narrow, None\) holds PyWindowMeanFwdOp#\d+\.[0-9a-f]{8} already"):
        assert op.delegate_for("narrow", None, PyWindowMeanFwdOp(9)) is op.narrow
    with pytest.raises(RuntimeError, match="an op whose forward is Python's own"):
        Op.delegate_for(moe.FusedMoEFwdOp(1), "routed_experts", 1)


def test_a_subclass_stands_in_its_parents_stage(x):
    tileops_cpp.load_spec_text(
        "namespace: pytests\n" + SPEC_FILE.read_text().split("\n\n")[1].replace(
            "PyWindowMeanFwdOp", "PyMedianFwdOp").replace("float32 | float64", "float32"), "median")

    class PyMedianFwdOp(PyWindowMeanFwdOp):
        def forward(self, x, *, y=None):
            return super().forward(x, y=y)

    assert np.array_equal(PySmoothFwdOp(2, PyMedianFwdOp(4))(x), smooth(x))


def test_a_sub_op_that_is_not_held_fails_the_call(x):
    stranger = PyWindowMeanFwdOp(2)

    class Loose(PyQuarterFwdOp):
        spec_name = "PyQuarterFwdOp_loose"

        def forward(self, x):
            return stranger(x)

    tileops_cpp.load_spec_text("namespace: pytests\n" + SPEC_FILE.read_text().split("\n\n")[3].replace(
        "PyQuarterFwdOp", "PyQuarterFwdOp_loose"), "loose")
    with pytest.raises(RuntimeError, match="it called PyWindowMeanFwdOp, which it does not hold; hold"):
        Loose()(x)


def test_an_exception_of_forward_passes_unchanged_and_undoes_the_selection(x):
    class Broken(Exception):
        pass

    class Failing(PyWindowMeanFwdOp):
        spec_name = "PyWindowMeanFwdOp_failing"
        fault = None

        def forward(self, x, *, y=None):
            if self.fault is not None:
                raise self.fault
            return super().forward(x, y=y)

    tileops_cpp.load_spec_text("namespace: pytests\n" + SPEC_FILE.read_text().split("\n\n")[1].replace(
        "PyWindowMeanFwdOp", "PyWindowMeanFwdOp_failing"), "failing")
    op = Failing(2)
    op.fault = Broken("as raised")
    with pytest.raises(Broken) as raised:
        op(x)
    assert raised.value is op.fault
    assert op.serving_target() is None, "a failed call that selected leaves nothing selected"
    op.fault = None
    op(x)
    record = op.last_call().indices
    op.fault = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        op(x)
    assert op.serving_target() == "builtin" and op.last_call().indices == record
    op.fault = KeyboardInterrupt()
    fresh = Failing(2)
    fresh.fault = SystemExit(3)
    with pytest.raises(SystemExit):
        fresh(x)
    assert fresh.serving_target() == "builtin", "cancellation is no failure: nothing is undone"


@pytest.mark.parametrize(
    "result, error, text",
    [
        (lambda x: x[:2].copy(), tileops_cpp.BackendError, "y"),
        (lambda x: x.astype(np.float64), tileops_cpp.BackendError, "y"),
        (lambda x: x, tileops_cpp.BackendError, "shares"),
        (lambda x: (x, x), TypeError, "1 outputs must be returned, got 2"),
        (lambda x: 3, TypeError, "y must be a tensor of torch or one with __dlpack__, got int"),
        (lambda x: None, tileops_cpp.BackendError, "y"),
    ],
)
def test_results_are_checked(x, result, error, text):
    op = PyWindowMeanFwdOp(2)
    op.forward = lambda x, y=None: result(x)
    with pytest.raises(error, match="PyWindowMeanFwdOp.*" + text):
        op(x)


def test_outputs_that_the_parameters_leave_out(x):
    assert np.allclose(PySplitFwdOp()(x), x.sum(axis=1))
    total, largest = PySplitFwdOp(with_max=True)(x)
    assert np.allclose(total, x.sum(axis=1)) and np.array_equal(largest, x.max(axis=1))
    lying = PySplitFwdOp(with_max=True)
    lying.forward = lambda x: x.sum(axis=1)
    with pytest.raises(tileops_cpp.BackendError, match="PySplitFwdOp.*largest"):
        lying(x)


def test_a_composite_of_the_librarys_ops():
    inputs = ExpertInputs()
    op = PyTwiceExpertsFwdOp()
    scale = np.full(12, 0.5, np.float16)
    y = op(*inputs, scale=scale)
    once = definition.expert_mlp(*inputs) * 0.5
    assert definition.error(y, definition.expert_mlp(once, *list(inputs)[1:])) < 5e-3
    assert [r.op for s in op.last_call().stages.values() for r in s] == ["MoEExpertMLPFwdOp"] * 2
    assert op.last_call().stages["first"][0].stages["down"][0].op == "MoEGroupedGemmFwdOp"
    nodes = json.loads(op.trace(*inputs).json())["nodes"]
    assert [node["stage"] for node in nodes] == ["first.gate_up", "first.down", "second.gate_up", "second.down"]
    with pytest.raises(TypeError, match="unsupported operand"):
        op.explain()  # on meta tensors, which NumPy has not: forward computes with one itself
    op(*inputs)
    assert [stage.stage for stage in op.explain().stages] == ["first", "second"]


def test_a_graph_cannot_pass_through_what_forward_computes_itself():
    inputs = ExpertInputs()
    with pytest.raises((RuntimeError, TypeError)):
        PyTwiceExpertsFwdOp().trace(*inputs, scale=np.full(12, 0.5, np.float16))


def test_a_python_op_inside_an_op_of_the_library():
    """A stand-in of equal signature, injected into a layer of the library's own."""
    entry = moe.FusedMoEExpertsFwdOp.spec
    seen = []
    text = """
namespace: pytests
PyExpertsFwdOp:
  family: pytest
  summary: "Experts in NumPy."
  signature:
    forall: {T: Dim, K: Dim, E: Dim, H: Dim, F: Dim, D: "DType[float16 | bfloat16]"}
    params:
      routed_scaling_factor: {type: float, default: 1.0}
      activation: {type: GatedActivation, default: silu_and_mul, keyword_only: true}
      small_route: {type: {enum: [auto, always, never]}, default: auto, keyword_only: true}
      batch_invariant: {type: bool, default: false, keyword_only: true}
    inputs:
      hidden_states: {dtype: D, shape: "[T, H]"}
      topk_weights: {dtype: float32, shape: "[T, K]"}
      topk_ids: {dtype: int32, metadata: true, shape: "[T, K]"}
      w_gate_up: {dtype: D, shape: "[E, 2 * F, H]"}
      w_down: {dtype: D, shape: "[E, H, F]"}
      b_gate_up: {dtype: D, shape: "[E, 2 * F]", optional: true, keyword_only: true, group: biases}
      b_down: {dtype: D, shape: "[E, H]", optional: true, keyword_only: true, group: biases}
    outputs:
      output: {dtype: D, shape: "[T, H]", buffer: out}
    shape_rules:
    - "is_finite(routed_scaling_factor) and routed_scaling_factor > 0"
    - "T * K <= 2147483647"
  workloads:
  - {label: small, T: 5, K: 2, E: 4, H: 24, F: 17, dtype_cases: [{D: float16}]}
  roofline: {flops: "0"}
"""
    tileops_cpp.load_spec_text(text, "experts")

    class PyExpertsFwdOp(Op):
        def forward(self, hidden, weights, ids, w_gate_up, w_down, **rest):
            seen.append((type(hidden), hidden, rest))
            out = np.zeros(hidden.shape)
            for t, k in np.ndindex(ids.shape):
                e = ids[t, k]
                out[t] += weights[t, k] * definition.mlp(hidden[t], w_gate_up[e], w_down[e])
            return out.astype(hidden.dtype)

    random = definition.rng(8)
    hidden = random.normal(size=(5, 12)).astype(np.float16)
    gating = random.normal(size=(5, 3)).astype(np.float32)
    inputs = ExpertInputs((1, 1, 1))
    experts = PyExpertsFwdOp()
    layer = moe.FusedMoEFwdOp(2, experts=experts)
    assert layer.held_delegates()[1].op is experts
    y = layer(hidden, gating, inputs.w_gate_up, inputs.w_down)
    wanted, _, _ = definition.fused_moe(hidden, gating, inputs.w_gate_up, inputs.w_down, 2)
    assert definition.error(y, wanted) < 2e-3
    assert seen[0][0] is np.ndarray and seen[0][1] is hidden and seen[0][2] == {}
    del experts
    gc.collect()
    assert np.array_equal(layer(hidden, gating, inputs.w_gate_up, inputs.w_down), y)
    assert entry["name"] == "FusedMoEExpertsFwdOp"


def test_a_class_that_is_run_again_takes_its_own_place(x):
    def define(factor):
        class PyAgainFwdOp(Op):
            def forward(self, x):
                return x * factor

        return PyAgainFwdOp

    tileops_cpp.load_spec_text("""
namespace: pytests
PyAgainFwdOp:
  family: pytest
  summary: "x times a number."
  signature: {forall: {N: Dim, M: Dim}, inputs: {x: {dtype: float32, shape: "[M, N]"}}, outputs: {y: {dtype: float32, shape: "[M, N]"}}}
  workloads: [{label: small, M: 1, N: 1, dtype_cases: [{}]}]
  roofline: {flops: "M * N"}
""", "again")
    assert np.array_equal(define(2)()(x), 2 * x)
    assert np.array_equal(define(3)()(x), 3 * x)
    with pytest.raises(ValueError, match="an op class of that name is declared already"):
        type("PyAgainFwdOp", (Op,), {"forward": lambda self, x: x, "__module__": "elsewhere"})
    with pytest.raises(ValueError, match="there is no spec entry PyNoEntryFwdOp"):
        type("PyNoEntryFwdOp", (Op,), {"forward": lambda self, x: x})()
