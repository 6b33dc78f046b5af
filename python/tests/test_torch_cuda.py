# SPDX-License-Identifier: Apache-2.0
"""torch tensors on a GPU: eager calls, streams, CUDA graphs, compiled calls, transformers' models."""
import pytest

import definition
from definition import TOLERANCE
from tileops_cpp import moe

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from torch_cases import Case, op_classes, same_bits, small_ids  # noqa: E402


def layer_inputs(tokens, experts=8, hidden=64, inter=48, seed=1):
    def random(*shape, scale=1.0):
        nonlocal seed
        seed += 1
        return torch.tensor(definition.rng(seed).normal(size=shape) * scale)

    return (
        random(tokens, hidden).bfloat16().cuda(),
        random(tokens, experts).float().cuda(),
        random(experts, 2 * inter, hidden, scale=0.2).bfloat16().cuda(),
        random(experts, hidden, inter, scale=0.2).bfloat16().cuda(),
    )


def defined(inputs, top_k=2):
    return definition.fused_moe(*(x.double().cpu().numpy() for x in inputs), top_k, renormalize=True)[0]


@pytest.fixture
def op():
    return moe.FusedMoEFwdOp(top_k=2, renormalize=True)


@pytest.mark.parametrize("tokens", [0, 1, 9, 300])
def test_eager_numbers(op, tokens):
    inputs = layer_inputs(tokens)
    output = op(*inputs)
    assert output.device == inputs[0].device and output.shape == inputs[0].shape
    if tokens:
        assert definition.error(output.double().cpu().numpy(), defined(inputs)) < TOLERANCE["bfloat16"]
        assert torch.equal(op(*inputs), output)


def test_work_is_ordered_on_the_current_stream(op):
    inputs = layer_inputs(300)
    expected = op(*inputs)
    hidden = torch.zeros_like(inputs[0])
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        hidden.copy_(inputs[0])
        output = op(hidden, *inputs[1:])
    stream.synchronize()
    assert torch.equal(output, expected)


def test_memory_is_torchs(op):
    inputs = layer_inputs(300)
    op(*inputs)
    before = torch.cuda.memory_allocated()
    output = op(*inputs)
    assert torch.cuda.memory_allocated() - before >= output.numel() * output.element_size()


def test_a_cuda_graph_replays_on_changed_contents(op):
    inputs, others = layer_inputs(40), layer_inputs(40, seed=50)
    with torch.no_grad():
        op(*inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = op(*inputs)
        for mine, other in zip(inputs, others):
            mine.copy_(other)
        output.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(output, op(*others))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("tokens", [1, 40, 300])
def test_compiled_calls_equal_eager_ones(op, mode, tokens):
    torch._dynamo.reset()
    inputs = layer_inputs(tokens)
    compiled = torch.compile(op, fullgraph=True, mode=mode)
    for seed in (1, 80, 120):
        fresh = layer_inputs(tokens, seed=seed)
        for mine, other in zip(inputs, fresh):
            mine.copy_(other)
        assert torch.equal(compiled(*inputs).clone(), op(*inputs))


@pytest.mark.parametrize("cls", op_classes(), ids=lambda cls: cls.__name__)
def test_operators_keep_their_contract(cls):
    case = Case(cls, small_ids(cls)[0])
    inputs = [None if x is None else x.cuda() for x in case.inputs]
    name = case.graph()["nodes"][0]["name"].rpartition("::")[2]
    operator = getattr(torch.ops.tileops_cpp, name).default
    results = torch.library.opcheck(
        operator, (case.op.key, *inputs), test_utils=("test_schema", "test_faketensor"), raise_exception=False
    )
    assert set(results.values()) == {"SUCCESS"}, results


def test_devices_are_not_mixed(op):
    inputs = layer_inputs(9)
    with pytest.raises(ValueError, match="cuda:0.*cpu|cpu.*cuda:0"):
        op(inputs[0].cpu(), *inputs[1:])


@pytest.mark.parametrize("family", ["deepseek_v3", "gpt_oss", "mixtral", "qwen3_moe"])
def test_models_of_transformers(family):
    pytest.importorskip("transformers", minversion="5.0")
    import tileops_cpp.transformers  # noqa: F401
    from tiny_models import largest_difference, logits_and_routes, make_model, make_tokens

    torch._dynamo.reset()
    model, tokens = make_model(family).cuda(), make_tokens().cuda()
    eager = logits_and_routes(model, tokens)
    model.set_experts_implementation("tileops")
    assert largest_difference(eager, logits_and_routes(model, tokens)) <= 2e-2
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert same_bits(compiled(tokens, use_cache=False).logits, model(tokens, use_cache=False).logits)
        assert model.generate(tokens, max_new_tokens=4, do_sample=False).shape == (3, 21)
