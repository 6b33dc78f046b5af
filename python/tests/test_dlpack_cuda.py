# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors of a framework that offers DLPack and nothing else, as CuPy's and JAX's do: streams, results."""
import pytest

import tileops_cpp
from tileops_cpp import moe

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from test_torch_cuda import layer_inputs  # noqa: E402

LEGACY_DEFAULT_STREAM = 1


class Producer:
    """Memory of torch under another name: a class with the protocol's two members alone. It notes the streams
    that consumers name, and makes them wait for its current stream, as the protocol wants."""

    streams = []

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, max_version=max_version)


class Unversioned(Producer):
    """DLPack 0.x: it knows a stream and nothing else."""

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream)


@pytest.fixture
def op():
    return moe.FusedMoEFwdOp(top_k=2, renormalize=True)


@pytest.fixture(autouse=True)
def no_streams_left():
    Producer.streams.clear()
    yield
    torch.cuda.synchronize()


@pytest.mark.parametrize("kind", [Producer, Unversioned])
@pytest.mark.parametrize("tokens", [0, 1, 300])
def test_numbers_and_results(op, kind, tokens):
    inputs = layer_inputs(tokens)
    torch.cuda.synchronize()
    y = op(*map(kind, inputs))
    assert type(y) is tileops_cpp.Tensor and y.device == f"cuda:{inputs[0].device.index}"
    assert y.__dlpack_device__() == inputs[0].__dlpack_device__()
    assert torch.equal(torch.from_dlpack(y), op(*inputs))
    assert Producer.streams == [LEGACY_DEFAULT_STREAM] * 4


def test_a_call_waits_for_the_producers_stream(op):
    inputs = layer_inputs(300)
    expected = op(*inputs)
    hidden = torch.zeros_like(inputs[0])
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        hidden.copy_(inputs[0])
        y = op(Producer(hidden), *map(Producer, inputs[1:]))
    assert torch.equal(torch.from_dlpack(y), expected)


def test_a_consumers_stream_waits_for_the_call(op):
    inputs = layer_inputs(300)
    expected = op(*inputs)
    consumer = torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda._sleep(50_000_000)  # the default stream, on which the call is put, is busy
    y = op(*map(Producer, inputs))
    with torch.cuda.stream(consumer):  # torch names this stream to Tensor.__dlpack__
        taken = torch.from_dlpack(y).clone()
    consumer.synchronize()
    assert torch.equal(taken, expected)


def test_streams_that_a_consumer_may_name(op):
    y = op(*map(Producer, layer_inputs(9)))
    side = torch.cuda.Stream()
    for stream in (None, -1, 1, 2, side.cuda_stream):
        y.__dlpack__(stream=stream)
    with pytest.raises(ValueError, match="DLPack knows no stream 0"):
        y.__dlpack__(stream=0)


def test_out_is_filled_and_returned():
    op = moe.FusedMoEExpertsFwdOp()
    hidden, _, w_gate_up, w_down = layer_inputs(40)
    weights = torch.full((40, 2), 0.5, device="cuda")
    ids = torch.arange(80, device="cuda", dtype=torch.int32).reshape(40, 2) % 8
    out = Producer(torch.full_like(hidden, float("nan")))
    torch.cuda.synchronize()
    arguments = hidden, weights, ids, w_gate_up, w_down
    assert op(*map(Producer, arguments), out=out) is out
    torch.cuda.synchronize()
    assert torch.equal(out.tensor, op(*arguments))


def test_results_serve_as_inputs(op):
    hidden, *others = layer_inputs(40)
    wanted = op(op(hidden, *others), *others)
    torch.cuda.synchronize()
    y = op(op(Producer(hidden), *map(Producer, others)), *map(Producer, others))
    assert torch.equal(torch.from_dlpack(y), wanted)


def test_cupy_arrays_come_back_as_cupy_arrays(op):
    cupy = pytest.importorskip("cupy")
    hidden, gating, w_gate_up, w_down = (x.half() if x.dtype == torch.bfloat16 else x for x in layer_inputs(9))
    torch.cuda.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        y = op(*map(cupy.from_dlpack, (hidden, gating, w_gate_up, w_down)))
        assert isinstance(y, cupy.ndarray)
        taken = y.copy()
    stream.synchronize()
    assert torch.equal(torch.from_dlpack(taken), op(hidden, gating, w_gate_up, w_down))
