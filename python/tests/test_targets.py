# SPDX-License-Identifier: Apache-2.0
"""Targets, detectors and backends from Python."""
import gc
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest

import definition
import tileops_cpp
from conftest import ExpertInputs
from tileops_cpp import MGroupedLayout, moe

OP = "MoEExpertMLPFwdOp"


class Recorder:
    """A builder in NumPy that keeps what it was asked and called with."""

    def __init__(self):
        self.requests, self.calls = [], []

    def __call__(self, request):
        self.requests.append(request)

        def kernel(x, w_gate_up, w_down, ends, *, out=None, **rest):
            self.calls.append((x, out, rest))
            result = definition.expert_mlp(x, w_gate_up, w_down, ends).astype(x.dtype)
            if out is None:
                return result
            out[:] = result
            return out

        return kernel


def mlp(**options):
    return moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), **options)


def test_a_target_serves_an_op_whole(expert_inputs):
    builder = Recorder()
    tileops_cpp.register_target_builder("numpy", moe.MoEExpertMLPFwdOp, builder)
    assert tileops_cpp.target_names() == ["numpy"]
    op = mlp(target="numpy")
    y = op(*expert_inputs)
    assert definition.error(y, definition.expert_mlp(*expert_inputs)) < 1e-3
    assert op.serving_target() == "numpy" and op.last_call().served_by == "numpy"
    assert op.last_call().stages == {"gate_up": [], "down": []}
    request = builder.requests[0]
    assert (request.op, request.device) == (OP, "cpu")
    assert [facts and facts.shape for facts in request.inputs] == [
        (7, 12), (3, 14, 12), (3, 12, 7), (3,), None, None]
    assert request.params == op.params
    assert builder.calls[0][0] is expert_inputs.x and builder.calls[0][1:] == (None, {})


def test_a_kernel_is_kept_by_the_facts_of_the_inputs(expert_inputs):
    builder = Recorder()
    tileops_cpp.register_target_builder("numpy", OP, builder)
    op = mlp(target="numpy")
    out = np.empty_like(expert_inputs.x)
    op(*expert_inputs)
    assert op(*expert_inputs, out=out) is out and builder.calls[-1][1] is out
    assert len(builder.requests) == 1
    op(*ExpertInputs((1, 1, 1)))
    assert len(builder.requests) == 2 and len(builder.calls) == 3


def test_the_default_target_and_builtin(expert_inputs):
    builder = Recorder()
    tileops_cpp.register_target_builder("numpy", OP, builder)
    assert tileops_cpp.default_target() is None
    tileops_cpp.set_default_target("numpy")
    assert tileops_cpp.default_target() == "numpy"
    ours, theirs = mlp(target="builtin"), mlp()
    ours(*expert_inputs), theirs(*expert_inputs)
    assert (ours.serving_target(), theirs.serving_target()) == ("builtin", "numpy")
    tileops_cpp.set_default_target(None)
    op = mlp()
    op(*expert_inputs)
    assert op.serving_target() == "builtin"
    with pytest.raises(ValueError, match="unknown target none_such|none_such"):
        tileops_cpp.set_default_target("none_such")
    with pytest.raises(ValueError, match="none_such"):
        mlp(target="none_such")(*expert_inputs)


def test_detectors_claim_devices(expert_inputs):
    asked = []
    tileops_cpp.register_target_builder("numpy", OP, Recorder())
    tileops_cpp.register_target_detector("numpy", lambda device: asked.append(device) or True)
    op = mlp()
    op(*expert_inputs)
    assert op.serving_target() == "numpy" and asked == ["cpu"]
    tileops_cpp.register_target_detector("another", lambda device: device == "cpu")
    with pytest.raises(tileops_cpp.AmbiguousTargetError, match="another.*numpy"):
        mlp()(*expert_inputs)
    tileops_cpp.unregister_target("another")

    def broken(device):
        raise LookupError("no such thing")

    tileops_cpp.register_target_detector("broken", broken)
    with pytest.raises(tileops_cpp.BackendError, match="broken.*no such thing"):
        mlp()(*expert_inputs)


def test_what_a_builder_raises_passes_unchanged_and_is_retried(expert_inputs):
    fault = LookupError("not now")
    results = [fault, None, Recorder()]

    def builder(request):
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result and result(request)

    tileops_cpp.register_target_builder("numpy", OP, builder)
    op = mlp(target="numpy")
    with pytest.raises(LookupError) as raised:
        op(*expert_inputs)
    assert raised.value is fault and op.serving_target() is None
    with pytest.raises(tileops_cpp.OpNotAvailableError, match="numpy returned nothing that can be called"):
        op(*expert_inputs)
    op(*expert_inputs)
    assert op.serving_target() == "numpy"


def test_a_wrong_result_names_the_target(expert_inputs):
    tileops_cpp.register_target_builder("numpy", OP, lambda request: lambda *args: np.zeros((2, 2), np.float16))
    with pytest.raises(tileops_cpp.BackendError, match="MoEExpertMLPFwdOp.*out.*numpy|numpy.*out"):
        mlp(target="numpy")(*expert_inputs)


def test_a_target_without_a_builder_leaves_a_composite_to_its_composition(expert_inputs):
    tileops_cpp.register_target_builder("numpy", OP, Recorder())
    layer = moe.FusedMoEExpertsFwdOp(target="numpy")
    x = expert_inputs.x
    weights, ids = np.ones((7, 1), np.float32), np.zeros((7, 1), np.int32)
    with pytest.raises(tileops_cpp.OpNotAvailableError, match="target numpy registered no builder"):
        layer(x, weights, ids, expert_inputs.w_gate_up, expert_inputs.w_down)


def test_tuning_of_a_targets_kernels(expert_inputs):
    asked = []

    class Kernel:
        def __call__(self, x, *rest, **named):
            return np.zeros_like(x)

        def request_tune(self):
            asked.append(1)

    tileops_cpp.register_target_builder("tunable", OP, lambda request: Kernel())
    tileops_cpp.register_target_builder("plain", OP, Recorder())
    op = mlp(target="tunable")
    op(*expert_inputs)
    op.request_tune()
    assert asked == [1]
    plain = mlp(target="plain")
    plain(*expert_inputs)
    with pytest.warns(RuntimeWarning, match="come from target plain, which offers no tuning"):
        plain.request_tune()


def test_a_warning_that_is_an_error_reaches_the_caller(expert_inputs):
    import warnings

    tileops_cpp.register_target_builder("plain", OP, Recorder())
    plain = mlp(target="plain")
    plain(*expert_inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="offers no tuning"):
            plain.request_tune()


def test_errors_of_registration():
    builder = Recorder()
    with pytest.raises(ValueError, match="cannot register a builder for NoSuchOp"):
        tileops_cpp.register_target_builder("numpy", "NoSuchOp", builder)
    tileops_cpp.register_target_builder("numpy", OP, builder)
    with pytest.raises(ValueError, match="a builder for MoEExpertMLPFwdOp is registered already"):
        tileops_cpp.register_target_builder("numpy", OP, builder)
    with pytest.raises(ValueError):
        tileops_cpp.register_target_builder("builtin", OP, builder)
    with pytest.raises(TypeError):
        tileops_cpp.register_target_builder("numpy", OP, 3)
    tileops_cpp.unregister_target_builder("numpy", moe.MoEExpertMLPFwdOp)
    with pytest.raises(ValueError, match="numpy"):
        tileops_cpp.unregister_target("numpy")


def test_a_registration_taken_back_lets_its_builder_go(expert_inputs):
    builder = Recorder()
    gone = weakref.ref(builder)
    tileops_cpp.register_target_builder("numpy", OP, builder)
    op = mlp(target="numpy")
    op(*expert_inputs)
    del builder
    tileops_cpp.unregister_target("numpy")
    gc.collect()
    assert gone() is not None, "an op that selected the target keeps it"
    del op
    gc.collect()
    mlp()(*expert_inputs)
    assert gone() is None


def test_a_backend_that_fails_to_load_is_an_error(tmp_path):
    path = tmp_path / "broken.so"
    path.write_bytes(b"no library")
    with pytest.raises(tileops_cpp.BackendError, match="broken.so"):
        tileops_cpp.load_backend(path)
    assert str(path) not in tileops_cpp.loaded_backends()


def test_a_backend_of_the_search_path_that_fails_is_listed(tmp_path):
    path = tmp_path / "broken.so"
    path.write_bytes(b"no library")
    code = """
import tileops_cpp, warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    tileops_cpp.load_backends()
(failure,) = tileops_cpp.load_failures()
print(failure.path, "broken.so" in failure.error, len(seen), seen[0].category.__name__)
"""
    environment = {**os.environ, "TILEOPS_BACKEND_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(path), "True", "1", "RuntimeWarning"]
