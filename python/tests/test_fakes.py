# SPDX-License-Identifier: Apache-2.0
"""Fakes say what calls give: for every op and every small workload, over numbers and over symbols."""
import json

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402

from tileops_cpp import fakes, torch_ops  # noqa: E402
from torch_cases import Case, as_tuple, op_classes, small_ids  # noqa: E402


def every(**which):
    return [
        pytest.param(cls, workload_id, id=f"{cls.__name__}-{workload_id}")
        for cls in op_classes(**which)
        for workload_id in small_ids(cls)
    ]


def facts(tensors):
    return [None if t is None else (tuple(t.shape), t.dtype, t.stride(), t.device.type) for t in tensors]


@pytest.mark.parametrize(("cls", "workload_id"), every(composites=True))
def test_inference_is_the_eager_calls(cls, workload_id):
    case = Case(cls, workload_id)
    found = fakes.inference(case.op.key).outputs([fakes.facts_of(x) for x in case.inputs])
    eager = as_tuple(case.call())
    found = [output for output in found if output is not None]
    assert found == [fakes.facts_of(y) for y in eager if y is not None]


@pytest.mark.parametrize(("cls", "workload_id"), every())
def test_a_fake_is_the_operator_without_contents(cls, workload_id):
    case = Case(cls, workload_id)
    name = torch_ops.branch_of(case.graph()["nodes"][0]["name"]).operator
    overload = torch_ops.overloads[name]
    real = as_tuple(overload(case.op.key, *case.inputs))
    with FakeTensorMode() as mode:
        inputs = [None if x is None else mode.from_tensor(x) for x in case.inputs]
        fake = as_tuple(overload(case.op.key, *inputs))
    assert facts(fake) == facts(real)
    meta = as_tuple(overload(case.op.key, *(None if x is None else x.to("meta") for x in case.inputs)))
    assert [f[:3] for f in facts(meta)] == [f[:3] for f in facts(real)]


@pytest.mark.parametrize(("cls", "workload_id"), every())
def test_symbols_are_kept_and_guard_nothing(cls, workload_id):
    case = Case(cls, workload_id)
    if any(size < 2 for x in case.inputs if x is not None for size in x.shape):
        pytest.skip("0 and 1 are no symbols")
    name = torch_ops.branch_of(case.graph()["nodes"][0]["name"]).operator
    env = ShapeEnv()
    with FakeTensorMode(shape_env=env) as mode:
        dynamic = torch.fx.experimental.symbolic_shapes.StatelessSymbolicContext
        all_dynamic = torch.fx.experimental.symbolic_shapes.DimDynamic.DYNAMIC
        inputs = [
            None
            if x is None
            else mode.from_tensor(x, symbolic_context=dynamic(dynamic_sizes=[all_dynamic] * x.dim()))
            for x in case.inputs
        ]
        outputs = as_tuple(torch_ops.overloads[name](case.op.key, *inputs))
    assert not env.guards, "a fake checks nothing"
    assert [tuple(map(int, y.shape)) for y in outputs] == [
        tuple(y.shape) for y in as_tuple(case.call()) if y is not None
    ]


def instance(**changes):
    spec = {
        "op": "TestOp",
        "inputs": [{"name": "x", "cpu": False}, {"name": "y", "cpu": True}],
        "known": {"9": [7, 8], "8": 5},
        "deciding": [1],
        "cases": [
            {"ranks": [["[M, *S, N]", 2, True], None], "steps": [], "outputs": []},
            {"ranks": [["[M, N]", 2, False], ["[2 * N]", 1, False]], "steps": [], "outputs": []},
        ],
    }
    for case in spec["cases"]:
        case.update(changes)
    return fakes.Inference(json.dumps(spec))


def value(tree, steps=(), x=(4, 5, 6), y=None):
    inputs = [fakes.Facts(x, torch.bfloat16), None if y is None else fakes.Facts(y, torch.int32)]
    return instance(steps=list(steps)).env(inputs).evaluate(tree)


@pytest.mark.parametrize(
    ("tree", "wanted"),
    [
        (["+", 2, ["*", 3, 4]], 14),
        (["-", ["//", 7, 2], ["%", 7, 4]], 0),
        (["/", 1, 4], 0.25),
        (["neg", 3], -3),
        (["if", 1, ["<", 2, 1], 0], 0),
        (["and", True, ["not", False]], True),
        (["or", False, [">=", 2, 2]], True),
        (["==", ["text", "a"], ["text", "a"]], True),
        (["!=", ["dtype", "int32"], ["dtype", "int64"]], True),
        (["in", 3, ["list", 1, 3]], True),
        (["not in", 3, ["list", 1, 3]], False),
        (["at", ["index", 9], 1], 8),
        (["prod", ["index", 9]], 56),
        (["len", ["index", 9]], 2),
        (["align_up", 9, 8], 16),
        (["ceil_div", 9, 8], 2),
        (["min", 3, ["max", 1, 2]], 2),
        (["abs", -2], 2),
        (["sqrt", 9], 3.0),
        (["is_finite", 1.5], True),
        (["itemsize", ["dtype", "bfloat16"]], 2),
        (["rank", ["tensor", 0]], 3),
        (["size", ["tensor", 0], 1], 5),
        (["numel", ["tensor", 0]], 120),
        (["numel", ["tensor", 1]], 0),
        (["bytes", ["tensor", 0]], 240),
        (["present", ["tensor", 1]], False),
        (["sum of", ["*", ["loop", 0], ["loop", 1]], [0, 1, 4], [1, 0, ["loop", 0]]], 11),
        (["all of", ["<", ["loop", 0], 3], [0, 0, 3]], True),
        (["any of", ["==", ["loop", 0], 3], [0, 0, 3]], False),
        (["max of", ["loop", 0], [0, 2, 5]], 4),
        (["min of", ["loop", 0], [0, 2, 5]], 2),
    ],
)
def test_trees(tree, wanted):
    assert value(tree) == wanted


def test_steps_solve_the_indices():
    steps = [
        ["dtype", 0, 0, 0],
        ["dim", 0, -1, 1],
        ["segment", 0, 1, 2, 2],
        ["affine", 0, 0, 3, 2, 0],
        ["affine_at", 0, 0, 4, ["+", ["*", ["index", 4], 2], 0]],
        ["let", 5, ["+", ["index", 1], ["index", 3]]],
        ["let", 6, ["index", 7]],
        ["dim", 1, 0, 7],
        ["dim", 0, 0, 8],
    ]
    solved = [value(["index", i], steps) for i in range(6)]
    assert solved == [torch.bfloat16, 6, (5,), 2, 2, 8]
    assert value(["index", 8], steps) == 5, "what construction knows stays"
    for unknown in (6, 7):
        with pytest.raises(KeyError):
            value(["index", unknown], steps)


def test_outputs_by_presence_alias_and_segment():
    output = {"name": "z", "alias": -1, "cpu": False, "when": ["present", ["tensor", 1]]}
    output |= {"shape": [2, ["*", ["index", 9]]], "dtype": ["dtype", "float32"]}
    known = instance(outputs=[output])
    x, y = fakes.Facts((4, 5), torch.int8), fakes.Facts((10,), torch.int8)
    assert known.outputs([x, None]) == [None]
    assert known.outputs([x, y]) == [fakes.Facts((2, 7, 8), torch.float32)]


def test_a_tensor_of_another_rank_is_an_error():
    with pytest.raises(ValueError, match=r"TestOp: x has shape \[4\]; the spec says \[M, \*S, N\]"):
        value(1, x=(4,))


def test_a_device_is_that_of_the_tensors_that_are_not_put_on_the_cpu():
    known = instance(outputs=[{"cpu": False}])
    on_meta, on_cpu = torch.empty(1, device="meta"), torch.empty(1)
    assert known.device(0, [on_meta, on_cpu]).type == "meta"
    assert known.device(0, [None, on_meta]).type == "cpu"
