# SPDX-License-Identifier: Apache-2.0
"""Objects, parameters, defaults, docstrings: from the spec; errors with the library's text."""
import inspect
import pickle
import re

import ml_dtypes
import numpy as np
import pytest

import tileops_cpp
from tileops_cpp import GatedActivation, MGroupedLayout, moe


def test_every_op_of_the_library_is_an_object_with_the_parameters_of_its_spec():
    names = [name for name in vars(moe) if name.endswith("FwdOp")]
    assert len(names) == 11
    for name in names:
        cls = getattr(moe, name)
        entry = cls.spec
        assert (cls.__name__, cls.__module__, cls.spec_name) == (name, "tileops_cpp.moe", name)
        parameters = list(inspect.signature(cls).parameters.values())
        declared = [param["name"] for param in entry["params"]]
        assert {each.name for each in parameters[: len(declared)]} == set(declared)
        options = ["target", "implementation", "device", "validate_inputs", "kernel_config"]
        assert [each.name for each in parameters[-5:]] == options
        for tensor in entry["inputs"] + entry["outputs"]:
            assert tensor["name"] + ":" in cls.__doc__
        assert list(cls.delegate_types) == [s["name"] for s in entry["stages"] if s["op"]]


def test_the_signature_of_an_op_reads_as_its_spec_does():
    text = str(inspect.signature(moe.MoEExpertMLPFwdOp))
    assert text.startswith(
        "(layout, activation=GatedActivation.silu_and_mul(), *, batch_invariant=False, target=None"
    ) or text.startswith("(layout, activation='silu_and_mul', *, batch_invariant=False, target=None")


def test_parameters_come_back_with_their_defaults():
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.masked(max_m=4), "swigluoai")
    assert op.params == {
        "layout": MGroupedLayout.masked(4),
        "activation": GatedActivation.swigluoai(alpha=1.702, limit=7.0),
        "batch_invariant": False,
    }
    assert op.name == "MoEExpertMLPFwdOp" and op.target is None
    assert re.fullmatch(r"MoEExpertMLPFwdOp#\d+\.[0-9a-f]{8}", op.key)
    assert moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous()).key != op.key


def test_values_of_sum_types():
    assert MGroupedLayout.contiguous() == MGroupedLayout.contiguous("tight", "physical_psum", 1)
    layout = MGroupedLayout.contiguous("aligned", "per_row", alignment=8)
    assert (layout.constructor, layout.alignment) == ("contiguous", 8)
    assert repr(layout) == (
        "MGroupedLayout.contiguous(packing='aligned', metadata_kind='per_row', alignment=8)"
    )
    assert GatedActivation.silu_and_mul == GatedActivation.silu_and_mul()
    assert hash(MGroupedLayout.masked(3)) == hash(MGroupedLayout.masked(max_m=3))
    assert MGroupedLayout.masked(3) != MGroupedLayout.masked(4) and layout != "contiguous"
    assert pickle.loads(pickle.dumps(layout)) == layout
    with pytest.raises(AttributeError, match="immutable"):
        layout.alignment = 4
    with pytest.raises(AttributeError, match="has no field max_m"):
        layout.max_m
    with pytest.raises(TypeError, match="max_m"):
        MGroupedLayout.masked()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)])
def test_dtypes_of_other_frameworks_are_parameters(dtype):
    params = {p["name"]: p for p in moe.MoEPostPermuteFwdOp.spec["params"]}
    name = next(name for name, param in params.items() if param["type"]["kind"] == "dtype")
    op = moe.MoEPostPermuteFwdOp(MGroupedLayout.contiguous(), **{name: dtype})
    assert op.params[name] == "bfloat16"


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: moe.MoEExpertMLPFwdOp(3), TypeError,
         "MoEExpertMLPFwdOp: parameter layout must be MGroupedLayout, got 3"),
        (lambda: moe.MoEExpertMLPFwdOp(), TypeError, "MoEExpertMLPFwdOp: missing a required argument: 'layout'; it takes (layout"),
        (lambda: moe.MoEExpertMLPFwdOp(MGroupedLayout.masked(1), tile=3), TypeError,
         "MoEExpertMLPFwdOp: got an unexpected keyword argument 'tile'; it takes (layout"),
        (lambda: moe.MoEExpertMLPFwdOp(MGroupedLayout.masked(0)), ValueError,
         "MoEExpertMLPFwdOp: parameter layout must satisfy 'max_m >= 1'"),
        (lambda: moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), "relu"), ValueError,
         "MoEExpertMLPFwdOp: parameter activation must be a GatedActivation (silu_and_mul | "),
        (lambda: moe.FusedMoEFwdOp(top_k=1 << 70), OverflowError, "too big to convert"),
        (lambda: moe.FusedMoEFwdOp(top_k=object()), TypeError, "a parameter or identity is None, a bool"),
        (lambda: moe.FusedMoEFwdOp(top_k=0), ValueError, "FusedMoEFwdOp"),
        (lambda: moe.FusedMoEFwdOp(2, experts=3), TypeError,
         "an op, or an object with prepare and finalize, can be injected; got 3"),
        (lambda: moe.FusedMoEFwdOp(2, device="tpu"), ValueError, "tpu"),
        (lambda: tileops_cpp.Op(), TypeError, "Op: a composite defines forward"),
    ],
)
def test_errors_of_construction(make, error, text):
    with pytest.raises(error, match=re.escape(text)) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_an_op_lives_as_long_as_its_object():
    import weakref

    op = moe.FusedMoEFwdOp(top_k=2)
    gone = weakref.ref(op)
    del op
    assert gone() is None


def test_error_classes():
    for name in ("OpNotAvailableError", "AmbiguousTargetError", "AmbiguousSelectionError",
                 "BackendError", "SpecError", "BuildError"):
        assert issubclass(getattr(tileops_cpp, name), tileops_cpp.Error)
    assert issubclass(tileops_cpp.Error, RuntimeError)
    with pytest.raises(OSError, match="no_such.yaml: cannot be read"):
        tileops_cpp.load_spec("no_such.yaml")
    with pytest.raises(tileops_cpp.SpecError, match=r"<text>:\d+: S\d+ Broken"):
        tileops_cpp.load_spec_text("Broken: {family: x, summary: '', signature: {inputs: 3}}")
