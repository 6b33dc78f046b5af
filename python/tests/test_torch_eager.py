# SPDX-License-Identifier: Apache-2.0
"""Eager calls on torch tensors. (Operators and compile: the other test_torch files.)"""
import gc
import threading
import weakref

import numpy as np
import pytest

import definition
import tileops_cpp
from definition import TOLERANCE
from tileops_cpp import MGroupedLayout, Op, moe

torch = pytest.importorskip("torch")

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def random(*shape, dtype=torch.bfloat16, seed=1, scale=1.0):
    values = definition.rng(seed).normal(size=shape) * scale
    return torch.tensor(values).to(dtype)


def layer_inputs(tokens=9, experts=6, hidden=24, inter=10, dtype=torch.bfloat16):
    return (
        random(tokens, hidden, dtype=dtype, seed=2),
        random(tokens, experts, dtype=torch.float32, seed=3),
        random(experts, 2 * inter, hidden, dtype=dtype, seed=4, scale=0.3),
        random(experts, hidden, inter, dtype=dtype, seed=5, scale=0.3),
    )


def numbers(*tensors):
    return [tensor.double().numpy() for tensor in tensors]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 9, 300])
def test_numbers(dtype, tokens):
    inputs = layer_inputs(tokens, dtype=DTYPES[dtype])
    y = moe.FusedMoEFwdOp(3, renormalize=True)(*inputs)
    assert type(y) is torch.Tensor and y.dtype == DTYPES[dtype] and y.device.type == "cpu"
    wanted, _, _ = definition.fused_moe(*numbers(*inputs), 3, True)
    assert definition.error(y.double(), wanted) < TOLERANCE[dtype]


def test_outputs_as_a_tuple():
    output, ids, counts = moe.FusedMoEFwdOp(2, return_routing=True)(*layer_inputs())
    assert (output.dtype, ids.dtype, counts.dtype) == (torch.bfloat16, torch.int32, torch.int32)
    assert int(counts.sum()) == ids.numel() == 18


def test_results_are_plain_tensors_that_own_their_memory():
    inputs = layer_inputs(64, hidden=128)
    op = moe.FusedMoEFwdOp(2)
    y = op(*inputs)
    kept = y.clone()
    z = op(*inputs)
    assert y.data_ptr() != z.data_ptr() and torch.equal(y, z) and y.is_contiguous()
    z.zero_()
    del op, z
    gc.collect()
    assert torch.equal(y, kept)
    view = y[3:, ::2]
    del y
    gc.collect()
    assert torch.equal(view, kept[3:, ::2])


def test_strided_inputs():
    hidden, gating, w_gate_up, w_down = layer_inputs()
    op = moe.FusedMoEFwdOp(2)
    wanted = op(hidden, gating, w_gate_up, w_down)
    strided = [
        hidden.t().contiguous().t(),
        torch.stack([gating, gating], -1)[..., 0],
        w_gate_up.transpose(1, 2).contiguous().transpose(1, 2),
        w_down.transpose(1, 2).contiguous().transpose(1, 2),
    ]
    assert not any(tensor.is_contiguous() for tensor in strided)
    assert definition.error(op(*strided).double(), wanted.double()) < 1e-2
    offset = torch.cat([hidden, hidden])[9:]
    assert offset.storage_offset() > 0
    assert torch.equal(op(offset, gating, w_gate_up, w_down), wanted)


def test_out():
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
    x, _, w_gate_up, w_down = layer_inputs(6)
    ends = torch.tensor([2, 2, 3, 5, 6, 6], dtype=torch.int32)
    wanted = op(x, w_gate_up, w_down, ends)
    out = torch.full_like(x, float("nan"))
    assert op(x, w_gate_up, w_down, ends, out=out) is out and torch.equal(out, wanted)
    wide = torch.full((6, 48), float("nan"), dtype=x.dtype)
    assert torch.equal(op(x, w_gate_up, w_down, ends, out=wide[:, :24]), wanted)
    assert wide[:, 24:].isnan().all()


@pytest.mark.parametrize("tokens", [0])
def test_no_tokens(tokens):
    output, ids, counts = moe.FusedMoEFwdOp(2, return_routing=True)(*layer_inputs(tokens))
    assert output.shape == (0, 24) and ids.shape == (0, 2) and counts.tolist() == [0] * 6


def test_an_input_that_requires_grad():
    inputs = layer_inputs()
    inputs[2].requires_grad_()
    op = moe.FusedMoEFwdOp(2)
    with pytest.raises(ValueError, match="FusedMoEFwdOp: w_gate_up requires grad, and the op has no backward; call it under torch.no_grad"):
        op(*inputs)
    with torch.no_grad():
        y = op(*inputs)
    with torch.inference_mode():
        z = op(*inputs)
    detached = op(inputs[0], inputs[1], inputs[2].detach(), inputs[3])
    assert torch.equal(y, z) and torch.equal(y, detached) and not y.requires_grad
    parameter = torch.nn.Parameter(inputs[3])
    with torch.no_grad():
        assert torch.equal(op(*inputs[:3], parameter), y)
    with torch.inference_mode():
        made_there = [tensor.clone() for tensor in inputs]
        assert torch.equal(op(*made_there), y)


def test_a_parameter_that_requires_grad():
    logits = torch.nn.Parameter(random(4, 8, dtype=torch.float32))
    op = moe.FusedTopKFwdOp(2)
    with pytest.raises(ValueError, match="FusedTopKFwdOp: gating_output requires grad"):
        op(logits)
    with torch.no_grad():
        assert torch.equal(op(logits)[1], op(logits.detach())[1])


def test_a_call_by_the_class_and_a_call_of_its_method_are_one():
    class Counted(moe.FusedTopKFwdOp):
        calls = 0

        def __call__(self, *args, **kwargs):
            Counted.calls += 1
            return super().__call__(*args, **kwargs)

    logits = random(4, 8, dtype=torch.float32)
    op = moe.FusedTopKFwdOp(2)
    wanted = op(logits)
    counted = Counted(2)
    calls = (op(gating_output=logits), op.__call__(logits), counted(logits), counted(gating_output=logits))
    for results in calls:
        assert all(map(torch.equal, results, wanted))
    assert Counted.calls == 2
    for call in (op, op.__call__):
        with pytest.raises(TypeError, match="FusedTopKFwdOp: it takes no tensor logits; it takes: gating_output"):
            call(logits=logits)
        with pytest.raises(TypeError, match="got gating_output by position and by name"):
            call(logits, gating_output=logits)
    with pytest.raises(AttributeError, match="_call"):
        moe.FusedTopKFwdOp.__new__(moe.FusedTopKFwdOp)(logits)


def test_an_export_that_runs_the_call_sees_the_operator():
    class Router(torch.nn.Module):
        op = moe.FusedTopKFwdOp(2)

        def forward(self, logits):
            return self.op(logits)

    exported = torch.export.export(Router(), (random(4, 8, dtype=torch.float32),), strict=False)
    assert "tileops_cpp.moe_fused_top_k_fwd" in exported.graph_module.code


def test_meta_tensors_are_checked_and_priced():
    inputs = [tensor.to("meta") for tensor in layer_inputs()]
    op = moe.FusedMoEFwdOp(2)
    y = op(*inputs)
    assert (y.device.type, y.dtype, tuple(y.shape), y.stride()) == (
        "meta", torch.bfloat16, (9, 24), (24, 1))
    assert op.last_call().device == "meta"
    with pytest.raises(ValueError, match="w_down has shape"):
        op(*inputs[:3], inputs[3][:, :5])


def test_a_quantity_that_torch_alone_has_is_refused():
    x, gating, w_gate_up, w_down = layer_inputs()
    with pytest.raises(Exception, match="complex|dtype|type code"):
        moe.FusedMoEFwdOp(2)(x.to(torch.complex64), gating, w_gate_up, w_down)
    with pytest.raises((TypeError, BufferError, RuntimeError)):
        moe.FusedMoEFwdOp(2)(x.to_sparse(), gating, w_gate_up, w_down)


def test_numpy_and_torch_together_come_back_as_the_first():
    x, gating, w_gate_up, w_down = layer_inputs(dtype=torch.float16)
    op = moe.FusedMoEFwdOp(2)
    wanted = op(x, gating, w_gate_up, w_down)
    assert torch.equal(op(x, gating.numpy(), w_gate_up, w_down.numpy()), wanted)
    y = op(x.numpy(), gating, w_gate_up, w_down)
    assert type(y) is np.ndarray and np.array_equal(y, wanted.numpy())


def test_dtypes_of_torch_are_parameters():
    op = moe.MoEPostPermuteFwdOp(MGroupedLayout.contiguous(), out_dtype=torch.float32)
    assert op.params["out_dtype"] == "float32"


def test_calls_keep_no_reference():
    import sys

    inputs = layer_inputs()
    op = moe.FusedMoEFwdOp(2)
    op(*inputs)
    before = [sys.getrefcount(tensor) for tensor in inputs]
    for _ in range(50):
        op(*inputs)
    assert [sys.getrefcount(tensor) for tensor in inputs] == before
    gone = weakref.ref(op(*inputs))
    gc.collect()
    assert gone() is None


def test_threads_on_one_op():
    op = moe.FusedMoEFwdOp(2)
    faults = []

    def work(index):
        try:
            for tokens in (1, 3 + index, 40):
                inputs = layer_inputs(tokens)
                wanted, _, _ = definition.fused_moe(*numbers(*inputs), 2)
                assert definition.error(op(*inputs).double(), wanted) < TOLERANCE["bfloat16"]
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert faults == []


def test_a_composite_on_torch_tensors():
    tileops_cpp.load_spec_text("""
namespace: pytests
TorchScaledMLPFwdOp:
  family: pytest
  summary: "Experts on scaled rows, the results scaled back."
  signature:
    forall: {E: Dim, P: Dim, H: Dim, F: Dim, D: "DType[float16 | bfloat16]"}
    inputs:
      x: {dtype: D, shape: "[P, H]"}
      w_gate_up: {dtype: D, shape: "[E, 2 * F, H]"}
      w_down: {dtype: D, shape: "[E, H, F]"}
      ends: {dtype: int32, shape: "[E]"}
    outputs: {y: {dtype: D, shape: "[P, H]"}}
  composition:
    stages: [{name: mlp, op: MoEExpertMLPFwdOp}]
  workloads: [{label: small, E: 2, P: 4, H: 8, F: 6, dtype_cases: [{D: float16}]}]
  roofline: {flops: "staged('mlp', 'flops', 0)"}
""", "scaled")

    class TorchScaledMLPFwdOp(Op):
        delegate_types = {"mlp": moe.MoEExpertMLPFwdOp}

        def __init__(self):
            super().__init__()
            self.mlp = self.delegate_for("mlp", None, layout=MGroupedLayout.contiguous())

        def forward(self, x, w_gate_up, w_down, ends):
            assert type(x) is torch.Tensor
            return 2 * self.mlp(0.5 * x, w_gate_up, w_down, ends)

    x, _, w_gate_up, w_down = layer_inputs(6)
    ends = torch.tensor([2, 2, 3, 5, 6, 6], dtype=torch.int32)
    op = TorchScaledMLPFwdOp()
    y = op(x, w_gate_up, w_down, ends)
    wanted = 2 * definition.expert_mlp(0.5 * x.double().numpy(), *numbers(w_gate_up, w_down), ends.tolist())
    assert definition.error(y.double(), wanted) < TOLERANCE["bfloat16"]
    assert [stage.stage for stage in op.explain().stages] == ["mlp"]
    assert op.eval_roofline().flops > 0
    with torch.no_grad():
        assert torch.equal(op(x, w_gate_up.clone().requires_grad_(), w_down, ends), y)


def test_a_target_on_torch_tensors():
    seen = []

    def builder(request):
        def kernel(hidden, gating, w_gate_up, w_down, **rest):
            seen.append(type(hidden))
            return torch.zeros_like(hidden)

        return kernel

    tileops_cpp.register_target_builder("zeros", "FusedMoEFwdOp", builder)
    y = moe.FusedMoEFwdOp(2, target="zeros")(*layer_inputs())
    assert seen == [torch.Tensor] and torch.count_nonzero(y) == 0
