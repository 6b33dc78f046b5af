# SPDX-License-Identifier: Apache-2.0
"""Every operator holds PyTorch's contract of custom operators: both forms, contiguous and strided
inputs, sizes that are symbols; and leaves no memory behind."""
import ctypes

import pytest

torch = pytest.importorskip("torch")

from tileops_cpp import torch_ops  # noqa: E402
from torch_cases import Case, as_tuple, fills_every_row, op_classes, same_bits, small_ids, strided, whole_ids  # noqa: E402

EVERY = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
MALLINFO2 = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
NO_VALUES = EVERY[:3]  # where some elements are unspecified, so that two runs may differ


def operators_of(case):
    """(branch, overload) of the functional operator of the case's call, and of that which fills out."""
    name = torch_ops.branch_of(case.graph()["nodes"][0]["name"]).operator
    found = [name] + [name + "_out"] * (name + "_out" in torch_ops.branches)
    return [(torch_ops.branches[each], torch_ops.overloads[each]) for each in found]


def cases():
    return [
        pytest.param(cls, workload_id, id=f"{cls.__name__}-{workload_id}")
        for cls in op_classes()
        for workload_id in small_ids(cls)
    ]


def with_distinct_shapes():
    """A few of the cases: the dynamic test traces the operator anew each time."""
    found = []
    for cls in op_classes():
        seen = set()
        for workload_id in whole_ids(cls):
            case = Case(cls, workload_id)
            kind = tuple(x is not None for x in case.inputs), len(as_tuple(case.call()))
            if kind not in seen and case.inputs[0].shape[0] > 1:
                seen.add(kind)
                found.append(pytest.param(cls, workload_id, id=f"{cls.__name__}-{workload_id}"))
    return found


def check(case, change, test_utils):
    inputs = [change(x) for x in case.inputs]
    eager = as_tuple(case.call(inputs=inputs))
    for branch, overload in operators_of(case):
        buffers = {}
        if branch.outs:
            buffers = {branch.outs[0]: change(torch.zeros_like(eager[0]))}
        torch.library.opcheck(overload, (case.op.key, *inputs), buffers, test_utils=test_utils)


@pytest.mark.parametrize("change", [lambda x: x, strided], ids=["contiguous", "strided"])
@pytest.mark.parametrize(("cls", "workload_id"), with_distinct_shapes())
def test_opcheck_with_dynamic_shapes(cls, workload_id, change):
    check(Case(cls, workload_id), change, EVERY)


@pytest.mark.parametrize("change", [lambda x: x, strided], ids=["contiguous", "strided"])
@pytest.mark.parametrize(("cls", "workload_id"), cases())
def test_opcheck(cls, workload_id, change):
    check(Case(cls, workload_id), change, NO_VALUES)


@pytest.mark.parametrize(("cls", "workload_id"), cases())
def test_an_operator_is_the_eager_call(cls, workload_id):
    if not fills_every_row(cls, workload_id):
        pytest.skip("some elements are unspecified")
    case = Case(cls, workload_id)
    eager = as_tuple(case.call())
    for branch, overload in operators_of(case):
        if branch.outs:
            made = torch.empty_like(eager[0])
            assert overload(case.op.key, *case.inputs, **{branch.outs[0]: made}) is None
        else:
            made = overload(case.op.key, *case.inputs)
        assert all(map(same_bits, as_tuple(made), eager))


def router():
    return Case(op_classes()[0], small_ids(op_classes()[0])[0])


def test_every_leaf_has_its_operators():
    for cls in op_classes():
        names = [name for name, branch in torch_ops.branches.items() if branch.op_class == cls.spec_name]
        assert names and all(name.startswith(f"tileops_cpp::{cls.spec['family']}_") for name in names)
    for cls in op_classes(leaves=False, composites=True):
        assert not [b for b in torch_ops.branches.values() if b.op_class == cls.spec_name]


def test_errors_have_the_text_of_the_eager_call():
    case = router()
    (_, overload), = operators_of(case)
    wrong = case.inputs[0][0]
    with pytest.raises(ValueError) as eager:
        case.op(wrong)
    with pytest.raises(ValueError) as node:
        overload(case.op.key, wrong)
    assert str(node.value) == str(eager.value)
    with pytest.raises(RuntimeError, match="gating_output has dtype float64"):
        overload(case.op.key, case.inputs[0].double())


def test_a_key_of_another_class_or_branch_is_an_error():
    case = router()
    key, gating = case.op.key, case.inputs[0]
    with pytest.raises(ValueError, match="is of a FusedTopKFwdOp; the operator is MoEPermuteAlignFwdOp's"):
        torch.ops.tileops_cpp.moe_permute_align_fwd(key, gating)
    with pytest.raises(ValueError, match="gives no tokens_per_expert; call the operator of that branch"):
        torch.ops.tileops_cpp.moe_fused_top_k_fwd(key, gating)


def test_a_key_whose_op_is_gone_names_its_class():
    case = router()
    (_, overload), = operators_of(case)
    key, gating = case.op.key, case.inputs[0]
    del case
    for tensor in (gating, gating.to("meta")):
        with pytest.raises(RuntimeError, match="the FusedTopKFwdOp instance of this key is gone"):
            overload(key, tensor)


def test_a_node_keeps_no_last_call():
    case = router()
    (_, overload), = operators_of(case)
    overload(case.op.key, *case.inputs)
    with pytest.raises(RuntimeError, match="no call has completed yet"):
        case.op.last_call()


def test_results_live_in_torchs_memory():
    case = router()
    (_, overload), = operators_of(case)
    weights, ids = overload(case.op.key, *case.inputs)
    assert weights.untyped_storage().resizable(), "a borrowed storage is not"
    del case
    assert ids.max() >= 0


def bytes_in_use():
    """What malloc has given out (glibc)."""

    class Information(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in MALLINFO2.split()]

    tell = ctypes.CDLL(None).mallinfo2
    tell.restype = Information
    told = tell()
    return told.uordblks + told.hblkhd


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
@pytest.mark.parametrize("cls", op_classes(), ids=lambda cls: cls.__name__)
def test_a_node_leaves_no_memory_behind(cls):
    case = Case(cls, whole_ids(cls)[0])
    _, overload = operators_of(case)[0]
    for _ in range(100):
        overload(case.op.key, *case.inputs)
    before = bytes_in_use()
    for _ in range(1000):
        overload(case.op.key, *case.inputs)
    assert bytes_in_use() - before < 16 * 1000
