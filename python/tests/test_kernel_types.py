# SPDX-License-Identifier: Apache-2.0
"""Kernel types registered from Python: selection, forcing, records, composites, threads."""
import gc
import threading
import time
import weakref

import ml_dtypes
import numpy as np
import pytest

import definition
import tileops_cpp
from definition import error, rng
from kernel_types import GEMM, OWN, NumPyGemm, candidates_of, gemm, gemm_inputs, gemm_op, kernels_of, register
from test_threads import in_threads
from tileops_cpp import MGroupedLayout, _core, _op, moe

__all__ = ["gemm", "register"]  # fixtures
LEAVES = sorted(
    cls.spec_name
    for cls in vars(moe).values()
    if isinstance(cls, type) and issubclass(cls, _op.Op) and cls is not _op.Op and not cls.spec["stages"]
)


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def call(op, inputs, **outs):
    """The op's call with the workload's inputs in the signature's order."""
    positional, named = [], dict(outs)
    for declared, tensor in zip(op.spec["inputs"], inputs):
        if declared["keyword_only"]:
            named[declared["name"]] = tensor
        else:
            positional.append(tensor)
    return op(*positional, **named)


@pytest.mark.parametrize(
    ("name", "workload_id"), [(name, each) for name in LEAVES for each in _core.workload_ids(name, "small")])
def test_every_leafs_interface_takes_one(register, name, workload_id):
    params, tensors = _core.workload(name, workload_id, 0)
    if params.get("out_dtype") is not None:
        params["out_dtype"] = np.dtype(getattr(ml_dtypes, params["out_dtype"], params["out_dtype"]))
    inputs = [None if each is None else np.asarray(each) for each in tensors]
    op_class = _op.classes[name]
    wanted = as_tuple(call(op_class(**params, implementation="reference"), inputs))
    outputs = [o["name"] for o in op_class.spec["outputs"]]
    calls = []

    def kernel(*positional, **named):
        calls.append((positional, named))
        for output, value in zip(outputs, wanted):
            named[output][...] = value

    specs = []
    register(name, "copied", lambda spec: specs.append(spec) or kernel)
    op = op_class(**params, implementation="copied")
    results = as_tuple(call(op, inputs))
    assert len(results) == len(wanted)
    for got, value in zip(results, wanted):
        assert got.dtype == value.dtype and np.array_equal(got.view(np.uint8), value.view(np.uint8))
    if not any(value.size for value in wanted):
        assert not calls, "nothing is to be written"
        return
    ((positional, named),) = calls
    given = [x for x, decl in zip(inputs, op_class.spec["inputs"]) if not decl["keyword_only"]]
    assert len(positional) == len(given) and all(a is b for a, b in zip(positional, given))
    for tensor, decl in zip(inputs, op_class.spec["inputs"]):
        if decl["keyword_only"] and tensor is not None:
            assert named.pop(decl["name"]) is tensor
    assert list(named) == outputs[: len(wanted)]
    ((interface, implementation, identity),) = op.last_call().kernels
    assert implementation == "copied" and interface in op._handle.interfaces
    assert specs[0].device == "cpu" and identity == list(specs[0])
    assert candidates_of(op)["copied"] == (True, "serves, as forced")


def test_it_serves_where_it_is_preferred_and_fills_the_buffer_that_is_given(gemm):
    op, inputs = gemm_op(), gemm_inputs()
    y = op(*inputs)
    assert kernels_of(op) == ["numpy"] and op.last_call().served_by == "builtin"
    assert error(y, gemm_op(implementation="reference")(*inputs)) < 1e-3
    out = np.full_like(y, np.nan)
    assert op(*inputs, out=out) is out and np.array_equal(out, y)
    a, b, ends, bias, given = gemm.calls[-1]
    assert given is out and bias is None and all(x is y for x, y in zip((a, b, ends), inputs))
    assert len(gemm.built) == 1, "one call spec"
    (spec,) = gemm.built
    assert (spec.num_rows, spec.num_experts, spec.n, spec.k) == (7, 3, 6, 8)
    assert (spec.dtype, spec.device, spec.activation) == ("float16", "cpu", None)
    assert spec.layout == MGroupedLayout.contiguous()
    with pytest.raises(AttributeError):
        spec.k = 3


def test_explain_lists_it_with_its_reason(gemm):
    masked = moe.MoEGroupedGemmFwdOp(MGroupedLayout.masked(4))
    a, b, _ = gemm_inputs()
    masked(np.zeros((3, 4, 8), np.float16), b, np.array([1, 0, 4], np.int32))
    assert kernels_of(masked) == ["cpu_blocked"]
    assert candidates_of(masked)["numpy"] == (False, "serves contiguous rows, got masked")
    op = gemm_op()
    op(*gemm_inputs())
    told = candidates_of(op)
    assert told["numpy"] == (True, "serves") and told["cpu_blocked"] == (False, "numpy is preferred")
    assert "-> grouped_gemm numpy: serves" in op.explain().text()


def test_forced_it_serves_or_says_why_not(gemm):
    op = gemm_op(implementation="numpy")
    op(*gemm_inputs())
    assert kernels_of(op) == ["numpy"]
    masked = moe.MoEGroupedGemmFwdOp(MGroupedLayout.masked(4), implementation="numpy")
    with pytest.raises(tileops_cpp.OpNotAvailableError, match=r"numpy \(serves contiguous rows, got masked\)"):
        masked(np.zeros((3, 4, 8), np.float16), gemm_inputs()[1], np.array([1, 0, 4], np.int32))
    ours = gemm_op(implementation="cpu_blocked")
    ours(*gemm_inputs())
    assert kernels_of(ours) == ["cpu_blocked"]
    with pytest.raises(ValueError, match="kernel_config: numpy has nothing to configure"):
        gemm_op(implementation="numpy", kernel_config={"tile": 3})(*gemm_inputs())


def test_without_a_preference_two_that_serve_are_an_error(register):
    register(moe.MoEGroupedGemmFwdOp, "undecided", NumPyGemm())
    with pytest.raises(tileops_cpp.AmbiguousSelectionError, match="cpu_blocked.*undecided.*declare preferred_over"):
        gemm_op()(*gemm_inputs())
    op = gemm_op(implementation="undecided")
    op(*gemm_inputs())
    assert kernels_of(op) == ["undecided"]


def test_of_another_device_it_is_no_candidate(register):
    register(GEMM, "far", NumPyGemm(), devices=("cuda",), preferred_over=("cpu_blocked",))
    op = gemm_op()
    op(*gemm_inputs())
    assert candidates_of(op)["far"] == (False, "runs on cuda, the call is on cpu")
    register(GEMM, "arch", NumPyGemm(), archs=("no_such_arch",), preferred_over=("cpu_blocked",))
    op = gemm_op()
    op(*gemm_inputs())
    assert candidates_of(op)["arch"][1].startswith("needs no_such_arch, cpu has ")


def test_in_a_composite_it_serves_the_stages(gemm, expert_mlp, expert_inputs):
    y = expert_mlp(*expert_inputs)
    assert error(y, definition.expert_mlp(*expert_inputs)) < 2e-3
    stages = expert_mlp.last_call().stages
    assert [stages[s][0].kernels[0][1] for s in ("gate_up", "down")] == ["numpy", "numpy"]
    assert [bool(spec.activation) for spec in gemm.built] == [True, False]
    (x, *_, inner), (again, *_, out) = gemm.calls
    assert x is expert_inputs.x and np.shares_memory(out, y)
    assert np.shares_memory(inner, again), "what a stage wrote is what the next one reads"
    forced = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), implementation="numpy")
    assert np.array_equal(forced(*expert_inputs), y)
    ours = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), implementation="cpu_blocked")
    ours(*expert_inputs)
    assert ours.last_call().stages["down"][0].kernels[0][1] == "cpu_blocked"


def test_in_a_layer_it_routes(register):
    random = rng(5)
    hidden, gating = random.normal(size=(6, 8)).astype(np.float16), random.normal(size=(6, 4)).astype(np.float32)
    w_gate_up = random.normal(size=(4, 12, 8)).astype(np.float16)
    w_down = random.normal(size=(4, 8, 6)).astype(np.float16)

    def build(spec):
        assert (spec.top_k, spec.scoring_func, spec.num_experts) == (2, "softmax", 4)

        def to_the_last_two(logits, bias, *, topk_weights, topk_ids):
            topk_weights[:], topk_ids[:] = 0.5, (2, 3)

        return to_the_last_two

    register("FusedTopKFwdOp", "last_two", build, preferred_over=("cpu_rows",))
    y = moe.FusedMoEFwdOp(2)(hidden, gating, w_gate_up, w_down)
    wanted = sum(definition.mlp(hidden, w_gate_up[e], w_down[e]) for e in (2, 3)) / 2
    assert error(y, wanted) < 3e-3


def test_an_identity_says_what_is_built_anew(register):
    whole, by_width = NumPyGemm(), NumPyGemm()
    register(GEMM, "whole", whole)
    register(GEMM, "by_width", by_width, identity=lambda call: (call.n, call.k))
    for name, made, count in (("whole", whole, 3), ("by_width", by_width, 2)):
        op = gemm_op(implementation=name)
        for rows, n in (((3,), 6), ((2, 2), 6), ((2, 2), 5), ((2, 2), 5)):
            inputs = gemm_inputs(rows=rows, n=n)
            assert error(op(*inputs), gemm_op(implementation="reference")(*inputs)) < 1e-3
        assert len(made.built) == count and len(made.calls) == 4
    assert [entry.identity for entry in op.built_entries()] == [[6, 8], [5, 8]]
    assert op.last_call().kernels == [("grouped_gemm", "by_width", [5, 8])]


def test_a_call_without_elements_runs_nothing(gemm):
    a, b, _ = gemm_inputs()
    assert gemm_op()(a[:0], b, np.zeros(3, np.int32)).shape == (0, 6) and not gemm.built


def test_tuned_mode_reaches_it(register):
    asked = []

    class Kernel:
        def __call__(self, *inputs, out):
            out[...] = 1

        def request_tune(self):
            asked.append(1)

    register(GEMM, "tunable", lambda call: Kernel())
    op = gemm_op(implementation="tunable")
    op(*gemm_inputs())
    op.request_tune()
    op(*gemm_inputs(rows=(2,)))
    assert asked == [1, 1] and all(kernel.tunable for kernel in op.iter_kernels())


def test_unregistered_it_stays_with_the_instances_that_have_it(expert_inputs):
    made = NumPyGemm()
    gone = weakref.ref(made)
    before = gemm_op()
    tileops_cpp.register_kernel_type(GEMM, "numpy", made, preferred_over=("cpu_blocked",))
    with_it = gemm_op()
    tileops_cpp.unregister_kernel_type(moe.MoEGroupedGemmFwdOp, "numpy")
    after = gemm_op()
    for op in (before, with_it, after):
        op(*gemm_inputs())
    assert [kernels_of(op) for op in (before, with_it, after)] == [["cpu_blocked"], ["numpy"], ["cpu_blocked"]]
    with pytest.raises(ValueError, match="no backend registered a kernel type numpy"):
        tileops_cpp.unregister_kernel_type(GEMM, "numpy")
    with pytest.raises(ValueError, match="no backend registered a kernel type cpu_blocked"):
        tileops_cpp.unregister_kernel_type(GEMM, "cpu_blocked")
    del made, op
    gc.collect()
    assert gone() is not None
    del with_it
    gc.collect()
    after(*gemm_inputs())
    assert gone() is None
    tileops_cpp.register_kernel_type(GEMM, "numpy", NumPyGemm(), preferred_over=("cpu_blocked",))
    tileops_cpp.unregister_kernel_type(GEMM, "numpy")


def test_threads_on_one_cold_op(register):
    made = NumPyGemm()
    build, start = made.__call__, threading.Barrier(8)

    def slow(call):
        time.sleep(0.02)
        return build(call)

    register(GEMM, "slow", slow, refusal=made.refusal, identity=lambda call: (call.n, call.k))
    op = gemm_op(implementation="slow")

    def work(index):
        start.wait()
        for round in range(10):
            inputs = gemm_inputs(seed=index, rows=(1 + index, round % 3))
            assert error(op(*inputs), gemm_op(implementation="reference")(*inputs)) < 1e-3

    in_threads(8, work)
    assert len(made.built) == 1 and len(made.calls) == 80


def test_threads_that_register_while_others_construct_and_call():
    def work(index):
        for round in range(20):
            name = f"of_{index}"
            tileops_cpp.register_kernel_type(GEMM, name, NumPyGemm())
            op = gemm_op(implementation=name)
            tileops_cpp.unregister_kernel_type(GEMM, name)
            op(*gemm_inputs())
            assert kernels_of(op) == [name]

    in_threads(6, work)
    untouched = gemm_op()
    untouched(*gemm_inputs())
    assert sorted(candidates_of(untouched)) == OWN


def test_on_jax_arrays_outputs_are_writable():
    jax = pytest.importorskip("jax")
    given = []

    def build(call):
        def kernel(*inputs, out, **rest):
            given.append(out)
            np.asarray(out)[...] = 3

        return kernel

    tileops_cpp.register_kernel_type(GEMM, "threes", build)
    try:
        y = gemm_op(implementation="threes")(*(jax.numpy.asarray(x) for x in gemm_inputs()))
    finally:
        tileops_cpp.unregister_kernel_type(GEMM, "threes")
    assert isinstance(y, jax.Array) and bool((y == 3).all()) and type(given[0]) is tileops_cpp.Tensor
