# SPDX-License-Identifier: Apache-2.0
"""Calls on NumPy arrays and on any tensor with __dlpack__."""
import ml_dtypes
import numpy as np
import pytest

import definition
import tileops_cpp
from conftest import ExpertInputs
from definition import TOLERANCE, error, rng
from tileops_cpp import MGroupedLayout, moe


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [(3, 0, 4), (1,), (17, 33, 2, 0)])
@pytest.mark.parametrize("activation", ["silu_and_mul", "swigluoai"])
def test_numbers(dtype, rows, activation):
    inputs = ExpertInputs(rows, hidden=33, inter=18, dtype=dtype)
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), activation)
    y = op(*inputs)
    assert type(y) is np.ndarray and y.dtype == dtype and y.shape == inputs.x.shape
    wanted = definition.expert_mlp(*inputs, getattr(definition, activation))
    assert error(y, wanted) < TOLERANCE[np.dtype(dtype).name]


def test_a_layer_and_its_routing():
    random = rng(3)
    hidden = random.normal(size=(9, 16)).astype(np.float16)
    gating = random.normal(size=(9, 6)).astype(np.float32)
    w_gate_up = (random.normal(size=(6, 16, 16)) * 0.3).astype(np.float16)
    w_down = (random.normal(size=(6, 16, 8)) * 0.3).astype(np.float16)
    op = moe.FusedMoEFwdOp(2, renormalize=True, return_routing=True)
    output, ids, counts = op(hidden, gating, w_gate_up, w_down)
    wanted, wanted_ids, _ = definition.fused_moe(hidden, gating, w_gate_up, w_down, 2, True)
    assert error(output, wanted) < TOLERANCE["float16"]
    assert np.array_equal(np.sort(ids), np.sort(wanted_ids))
    assert np.array_equal(counts, np.bincount(wanted_ids.ravel(), minlength=6))
    alone = moe.FusedMoEFwdOp(2, renormalize=True)(hidden, gating, w_gate_up, w_down)
    assert np.array_equal(alone, output)


def test_strided_inputs(expert_mlp):
    inputs = ExpertInputs()
    transposed = np.asfortranarray(inputs.x)
    w_down = np.ascontiguousarray(inputs.w_down.transpose(0, 2, 1)).transpose(0, 2, 1)
    wide = np.full((inputs.x.shape[0], 2 * inputs.x.shape[1]), np.nan, inputs.x.dtype)
    wide[:, ::2] = inputs.x
    wanted = expert_mlp(*inputs)
    for x, down in ((transposed, inputs.w_down), (inputs.x, w_down), (wide[:, ::2], w_down)):
        assert error(expert_mlp(x, inputs.w_gate_up, down, inputs.ends), wanted) < 1e-3


def test_negative_strides_are_refused_by_name(expert_mlp, expert_inputs):
    _, w_gate_up, w_down, ends = expert_inputs
    with pytest.raises(ValueError, match="strides must be at least 0"):
        expert_mlp(expert_inputs.x[::-1], w_gate_up, w_down, ends)


def test_out_is_filled_and_returned(expert_mlp, expert_inputs):
    wanted = expert_mlp(*expert_inputs)
    out = np.full_like(wanted, np.nan)
    assert expert_mlp(*expert_inputs, out=out) is out
    assert np.array_equal(out, wanted)
    assert expert_mlp(*expert_inputs, out=None) is not out
    fused = moe.FusedMoEExpertsFwdOp()
    x = expert_inputs.x
    weights = np.ones((len(x), 1), np.float32)
    ids = np.zeros((len(x), 1), np.int32)
    arguments = (x, weights, ids, expert_inputs.w_gate_up, expert_inputs.w_down)
    by_spec, by_out = np.empty_like(x), np.empty_like(x)
    assert fused(*arguments, output=by_spec) is by_spec and fused(*arguments, out=by_out) is by_out
    assert np.array_equal(by_spec, by_out)


def test_an_out_that_overlaps_an_input_is_refused(expert_mlp, expert_inputs):
    with pytest.raises(ValueError, match="MoEExpertMLPFwdOp: out .*overlap"):
        expert_mlp(*expert_inputs, out=expert_inputs.x)


def test_read_only_arrays_serve_as_inputs_and_not_as_out(expert_mlp, expert_inputs):
    wanted = expert_mlp(*expert_inputs)
    for tensor in expert_inputs:
        tensor.flags.writeable = False
    assert np.array_equal(expert_mlp(*expert_inputs), wanted)
    out = np.empty_like(wanted)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="MoEExpertMLPFwdOp: out is read-only, and the call writes it"):
        expert_mlp(*expert_inputs, out=out)
    assert wanted.flags.writeable


@pytest.mark.parametrize("rows", [(0, 0), (0,)])
def test_no_rows(expert_mlp, rows):
    inputs = ExpertInputs(rows)
    y = expert_mlp(*inputs)
    assert y.shape == (0, 12) and expert_mlp.last_call().stages == {"gate_up": [], "down": []}


def test_no_tokens_in_a_layer():
    inputs = ExpertInputs((2, 2))
    y = moe.FusedMoEFwdOp(1)(
        inputs.x[:0], np.zeros((0, 2), np.float32), inputs.w_gate_up, inputs.w_down
    )
    assert y.shape == (0, 12)


class Foreign:
    """A tensor of a framework that offers DLPack and nothing else; `versions`: what it knows."""

    def __init__(self, array, knows_versions):
        self.array = array
        self.knows_versions = knows_versions

    def __dlpack__(self, **kwargs):
        if not self.knows_versions and kwargs:
            raise TypeError("unexpected keyword argument")
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("knows_versions", [False, True])
def test_any_tensor_with_dlpack_is_taken_and_a_tensor_comes_back(
    expert_mlp, expert_inputs, knows_versions
):
    y = expert_mlp(*(Foreign(tensor, knows_versions) for tensor in expert_inputs))
    assert type(y) is tileops_cpp.Tensor
    wanted = expert_mlp(*expert_inputs)
    assert np.array_equal(np.from_dlpack(y), wanted) and np.array_equal(np.asarray(y), wanted)
    assert np.asarray(y, dtype=np.float64).dtype == np.float64
    assert (y.shape, y.strides, y.dtype, y.device) == ((7, 12), (12, 1), "float16", "cpu")
    again = expert_mlp(y, *list(expert_inputs)[1:])
    assert type(again) is tileops_cpp.Tensor


class Bare:
    """A tensor of DLPack's first versions: __dlpack__ takes nothing."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_a_producer_whose_dlpack_takes_nothing(expert_mlp, expert_inputs):
    out = Bare(np.full_like(expert_inputs.x, np.nan))
    assert expert_mlp(*map(Bare, expert_inputs), out=out) is out
    assert np.array_equal(out.array, expert_mlp(*expert_inputs))


def test_a_read_only_producer_serves_as_input_and_not_as_out(expert_mlp, expert_inputs):
    wanted = expert_mlp(*expert_inputs)
    for tensor in expert_inputs:
        tensor.flags.writeable = False
    tensors = [Foreign(tensor, True) for tensor in expert_inputs]
    assert np.array_equal(np.from_dlpack(expert_mlp(*tensors)), wanted)
    out = np.empty_like(wanted)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="MoEExpertMLPFwdOp: out is read-only, and the call writes it"):
        expert_mlp(*tensors, out=Foreign(out, True))


def test_what_a_producer_raises_passes_unchanged(expert_mlp, expert_inputs):
    class Broken(Foreign):
        def __dlpack__(self, **kwargs):
            raise BufferError("not now")

    tensors = [Foreign(tensor, True) for tensor in expert_inputs]
    tensors[2] = Broken(expert_inputs.w_down, True)
    with pytest.raises(BufferError, match="not now"):
        expert_mlp(*tensors)


def test_arrays_with_types_of_their_own_are_taken_by_what_they_are(expert_mlp, expert_inputs):
    wanted = expert_mlp(*expert_inputs)
    x, w_gate_up, w_down, ends = expert_inputs
    noted = x.astype(np.dtype(np.float16, metadata={"unit": "m"}))
    assert np.array_equal(expert_mlp(noted, w_gate_up, w_down, ends), wanted)

    class Mine(np.ndarray):
        pass

    y = expert_mlp(x.view(Mine), w_gate_up, w_down, ends)
    assert type(y) is np.ndarray and np.array_equal(y, wanted)
    with pytest.raises((TypeError, ValueError, BufferError)):
        expert_mlp(x.astype(">f2"), w_gate_up, w_down, ends)


def test_results_outlive_their_op_and_write_to_their_own_memory(expert_inputs):
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
    first, second = op(*expert_inputs), op(*expert_inputs)
    wanted = first.copy()
    del op
    second[:] = 7
    assert first.flags.writeable and np.array_equal(first, wanted) and not np.shares_memory(first, second)


def test_a_tensor_shares_its_memory_and_keeps_it(expert_mlp, expert_inputs):
    y = expert_mlp(*(Foreign(tensor, True) for tensor in expert_inputs))
    first, second = np.from_dlpack(y), np.from_dlpack(y)
    wanted = first.copy()
    first[0, 0] = 7
    assert second[0, 0] == 7
    del y, first
    second[0, 0] = wanted[0, 0]
    assert np.array_equal(second, wanted)
    with pytest.raises(BufferError, match="copy=True is not offered"):
        expert_mlp(*(Foreign(t, True) for t in expert_inputs)).__dlpack__(copy=True)


def test_what_is_no_tensor_is_refused(expert_mlp, expert_inputs):
    _, w_gate_up, w_down, ends = expert_inputs
    with pytest.raises(TypeError, match="expert_input must be a tensor of torch or one with __dlpack__, got list"):
        expert_mlp([1, 2], w_gate_up, w_down, ends)
    with pytest.raises(TypeError, match="dlpack import: there is no dtype"):
        expert_mlp(expert_inputs.x.astype(np.uint32), w_gate_up, w_down, ends)


@pytest.mark.parametrize(
    "change, kind, text",
    [
        (lambda a: a.pop("layout_metadata"), TypeError, "layout_metadata is absent; the spec requires it"),
        (lambda a: a.update(w_gate_up=None), TypeError, "w_gate_up is absent; the spec requires it"),
        (lambda a: a.update(bias=a["w_down"]), TypeError, "it takes no tensor bias; it takes: expert_input, w_gate_up"),
        (lambda a: a.update(expert_input=a["expert_input"].astype(np.float64)), TypeError, "expert_input has dtype float64; the spec says D in float16 | bfloat16"),
        (lambda a: a.update(w_down=a["w_down"][:, :5]), ValueError, "w_down has shape"),
    ],
)
def test_errors_of_calls(expert_mlp, expert_inputs, change, kind, text):
    names = ("expert_input", "w_gate_up", "w_down", "layout_metadata")
    arguments = dict(zip(names, expert_inputs))
    change(arguments)
    with pytest.raises(kind) as raised:
        expert_mlp(**arguments)
    assert str(raised.value).startswith("MoEExpertMLPFwdOp: ") and text in str(raised.value)


def test_tensors_that_come_together():
    inputs = ExpertInputs((2, 2))
    arguments = inputs.x, np.zeros((4, 2), np.float32), inputs.w_gate_up, inputs.w_down
    with pytest.raises(TypeError, match="FusedMoEFwdOp: .*b_gate_up"):
        moe.FusedMoEFwdOp(1)(*arguments, b_down=np.zeros((2, 12), np.float16))


def test_a_forced_implementation_that_is_not_there(expert_inputs):
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), implementation="none_such")
    with pytest.raises((ValueError, tileops_cpp.OpNotAvailableError), match="none_such"):
        op(*expert_inputs)


def test_positions_and_names(expert_mlp, expert_inputs):
    x, w_gate_up, w_down, ends = expert_inputs
    wanted = expert_mlp(x, w_gate_up, w_down, ends)
    assert np.array_equal(expert_mlp(x, w_gate_up, layout_metadata=ends, w_down=w_down), wanted)
    with pytest.raises(TypeError, match=r"takes 4 tensors by position \(expert_input, w_gate_up, w_down, layout_metadata\), got 5"):
        expert_mlp(x, w_gate_up, w_down, ends, x)
    with pytest.raises(TypeError, match="got w_down by position and by name"):
        expert_mlp(x, w_gate_up, w_down, ends, w_down=w_down)


def test_values_are_checked_where_asked(expert_inputs):
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), validate_inputs=True)
    x, w_gate_up, w_down, _ = expert_inputs
    with pytest.raises(ValueError, match="MoEExpertMLPFwdOp: layout_metadata"):
        op(x, w_gate_up, w_down, np.array([3, 2, 7], np.int32))


def test_jax_arrays_come_back_as_jax_arrays():
    jax = pytest.importorskip("jax")
    random = rng(4)
    hidden = jax.numpy.asarray(random.normal(size=(5, 16)), jax.numpy.bfloat16)
    gating = jax.numpy.asarray(random.normal(size=(5, 4)), jax.numpy.float32)
    w_gate_up = jax.numpy.asarray(random.normal(size=(4, 16, 16)) * 0.3, jax.numpy.bfloat16)
    w_down = jax.numpy.asarray(random.normal(size=(4, 16, 8)) * 0.3, jax.numpy.bfloat16)
    y = moe.FusedMoEFwdOp(2)(hidden, gating, w_gate_up, w_down)
    assert isinstance(y, jax.Array) and y.dtype == jax.numpy.bfloat16
    arrays = [np.asarray(t).astype(np.float64) for t in (hidden, gating, w_gate_up, w_down)]
    wanted, _, _ = definition.fused_moe(*arrays, 2)
    assert error(np.asarray(y).astype(np.float64), wanted) < TOLERANCE["bfloat16"]
