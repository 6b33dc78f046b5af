# SPDX-License-Identifier: Apache-2.0
"""The contract of compilation (F): what Dynamo's graph and AOT's hold, and what makes a new one."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402

import tileops_cpp  # noqa: E402
from tileops_cpp import moe, torch_ops  # noqa: E402
from torch_cases import Case, as_tuple, op_classes, same_bits, whole_ids  # noqa: E402


class Graphs:
    """A backend that runs graphs as they are and keeps them: Dynamo's and AOT's."""

    def __init__(self):
        self.dynamo = []
        self.aot = []

    def __call__(self, module, inputs):
        self.dynamo.append(module)

        def keep(graph, _):
            self.aot.append(graph)
            return make_boxed_func(graph.forward)

        return aot_autograd(fw_compiler=keep)(module, inputs)

    def compile(self, function, **options):
        return torch.compile(function, fullgraph=True, backend=self, **options)

    @staticmethod
    def nodes(graph):
        """(operator, key) of every call of an operator of ours; any other call by its name."""
        found = []
        for node in graph.graph.nodes:
            if node.op != "call_function" or "getitem" in str(node.target):
                continue
            name = str(node.target).removesuffix(".default").replace(".", "::")
            found.append((name, node.args[0]) if name in torch_ops.branches else name)
        return found


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graphs():
    return Graphs()


def leaves_of(case):
    return [(torch_ops.branch_of(n["name"]).operator, n["key"]) for n in case.graph()["nodes"]]


def one_per_op():
    return [
        pytest.param(cls, whole_ids(cls)[0], id=cls.__name__)
        for cls in op_classes(composites=True)
    ]


@pytest.mark.parametrize(("cls", "workload_id"), one_per_op())
def test_both_graphs_hold_exactly_the_leaves_cold(graphs, cls, workload_id):
    case = Case(cls, workload_id)
    compiled = graphs.compile(case.op)
    results = as_tuple(case.call(compiled))
    with pytest.raises(RuntimeError, match="no call has completed yet"):
        case.op.last_call()
    eager = as_tuple(case.call())
    assert len(results) == len(eager) and all(map(same_bits, results, eager))
    wanted = leaves_of(case)
    assert [graphs.nodes(g) for g in graphs.dynamo] == [wanted]
    assert [graphs.nodes(g) for g in graphs.aot] == [wanted]


def layer(tokens, experts=4, hidden=16, inter=8, seed=0):
    """hidden states, logits, w_gate_up, w_down."""
    random = torch.Generator().manual_seed(seed)
    make = lambda *shape: torch.randn(*shape, generator=random)  # noqa: E731
    return (
        make(tokens, hidden).bfloat16(),
        make(tokens, experts),
        (make(experts, 2 * inter, hidden) / 4).bfloat16(),
        (make(experts, hidden, inter) / 4).bfloat16(),
    )


def marked(tokens, **sizes):
    tensors = layer(tokens, **sizes)
    for tensor in tensors[:2]:
        torch._dynamo.mark_dynamic(tensor, 0)
    return tensors


SIZES = (8, 9, 40, 255, 256, 13, 257, 300, 1000)


LAYERS = {
    "experts": moe.FusedMoEExpertsFwdOp,
    "layer": lambda: moe.FusedMoEFwdOp(top_k=2, renormalize=True),
    "shared": lambda: moe.FusedMoESharedExpertFwdOp(top_k=2, return_routing=True),
}


def call_layer(op, x, logits, w_gate_up, w_down):
    if op.name == "FusedMoEExpertsFwdOp":
        weights, ids = logits.softmax(-1).topk(2)
        return op(x, weights, ids.int(), w_gate_up, w_down)
    if op.name == "FusedMoESharedExpertFwdOp":
        return op(x, logits, w_gate_up, w_down, shared_w_gate_up=w_gate_up[0], shared_w_down=w_down[0])
    return op(x, logits, w_gate_up, w_down)


@pytest.mark.parametrize("name", LAYERS)
def test_one_graph_serves_every_token_count(graphs, name):
    op = LAYERS[name]()
    compiled = graphs.compile(lambda *tensors: call_layer(op, *tensors))
    for tokens in SIZES:
        results = as_tuple(compiled(*marked(tokens)))
        assert all(map(same_bits, results, as_tuple(call_layer(op, *layer(tokens))))), tokens
    assert len(graphs.dynamo) == 1


def test_leaves_and_settled_composites_take_any_size_in_one_graph(graphs):
    router = moe.FusedTopKFwdOp(top_k=2)
    experts = moe.MoEExpertMLPFwdOp(tileops_cpp.MGroupedLayout.contiguous())
    _, _, w_gate_up, w_down = layer(1)
    compiled = graphs.compile(lambda x, logits, ends: (router(logits), experts(x, w_gate_up, w_down, ends)))
    for tokens in (5, 700, 33):
        x, logits, _, _ = marked(tokens)
        ends = torch.tensor([2, 2, 4, tokens], dtype=torch.int32)
        (weights, ids), y = compiled(x, logits, ends)
        assert same_bits(ids, router(logits)[1]) and same_bits(weights, router(logits)[0])
        assert same_bits(y, experts(x, w_gate_up, w_down, ends))
    assert len(graphs.dynamo) == 1


def test_another_identity_is_another_graph(graphs):
    op = moe.FusedMoEFwdOp(top_k=2, experts=moe.FusedMoEExpertsFwdOp(small_route="never"))
    compiled = graphs.compile(op)
    for experts, expected in ((4, 1), (8, 2), (4, 2), (8, 2)):
        for tokens in (300, 400):
            tensors = marked(tokens, experts=experts)
            for tensor in tensors:
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
            assert same_bits(compiled(*tensors), op(*layer(tokens, experts=experts)))
        assert len(graphs.dynamo) == expected
    keys = [[key for name, key in graphs.nodes(g) if "pre_permute" in name][0] for g in graphs.dynamo]
    assert keys[0] != keys[1]


def test_a_given_buffer_is_filled_by_a_leaf(graphs):
    op = moe.MoEExpertMLPFwdOp(tileops_cpp.MGroupedLayout.contiguous())
    case = Case(type(op), whole_ids(type(op))[0])
    out = torch.zeros_like(case.call())
    results = graphs.compile(lambda *tensors: case.op(*tensors, out=out))(*case.inputs[:4])
    assert results is out and same_bits(out, case.call())
    operators = [name for name, _ in graphs.nodes(graphs.dynamo[0])]
    assert operators == ["tileops_cpp::moe_grouped_gemm_fwd", "tileops_cpp::moe_grouped_gemm_fwd_out"]
    assert "auto_functionalized" in str(graphs.nodes(graphs.aot[0]))


def test_two_instances_share_no_key(graphs):
    tensors = layer(8)
    compiled = graphs.compile(lambda op, *tensors: op(*tensors))
    for op in (moe.FusedMoEFwdOp(top_k=2), moe.FusedMoEFwdOp(top_k=2)):
        assert same_bits(compiled(op, *tensors), op(*tensors))
    first, second = ({key for _, key in graphs.nodes(g)} for g in graphs.dynamo)
    assert first.isdisjoint(second)


def test_the_target_changes_no_graph(graphs):
    op = moe.FusedTopKFwdOp(top_k=2)
    logits = layer(8)[1]
    compiled = graphs.compile(op)
    ours = compiled(logits)
    served = []

    def build(request):
        def kernel(logits, *rest, **named):
            served.append(1)
            return logits[:, :2] * 0, torch.zeros(logits.shape[0], 2, dtype=torch.int32)

        return kernel

    tileops_cpp.register_target_builder("zeros", "FusedTopKFwdOp", build)
    tileops_cpp.set_default_target("zeros")
    other = moe.FusedTopKFwdOp(top_k=2)
    theirs = graphs.compile(other)(logits)
    assert served and not theirs[1].any() and ours[1].any()
    assert [name for name, _ in graphs.nodes(graphs.dynamo[0])] == [
        name for name, _ in graphs.nodes(graphs.dynamo[1])
    ]
    compiled(logits)
    assert len(graphs.dynamo) == 2, "an instance keeps its graph, whatever the default is"


def test_a_dead_key_names_its_class(graphs):
    op = moe.FusedTopKFwdOp(top_k=2)
    logits = layer(8)[1]
    graphs.compile(lambda logits: op(logits))(logits)
    module = graphs.dynamo[0]
    module(logits)
    del op
    torch._dynamo.reset()
    import gc

    gc.collect()
    with pytest.raises(RuntimeError, match="the FusedTopKFwdOp instance of this key is gone"):
        module(logits)


def test_injected_experts_are_leaves_too(graphs):
    experts = moe.FusedMoEExpertsFwdOp(small_route="never")
    op = moe.FusedMoEFwdOp(top_k=2, experts=experts)
    tensors = layer(8)
    assert same_bits(graphs.compile(op)(*tensors), op(*tensors))
    assert any("pre_permute" in name for name, _ in graphs.nodes(graphs.dynamo[0]))


class Local(moe.PrepareFinalize):
    pass


class Halves(moe.PrepareFinalize):
    def prepare(self, tokens, num_experts):
        return tokens._replace(hidden_states=tokens.hidden_states.clone()), None


def test_a_prepare_finalize_that_passes_tensors_on_compiles(graphs):
    op = moe.FusedMoEFwdOp(top_k=2, prepare_finalize=Local())
    tensors = layer(8)
    assert same_bits(graphs.compile(op)(*tensors), op(*tensors))


def test_a_prepare_finalize_that_computes_is_refused_with_a_reason(graphs):
    op = moe.FusedMoEFwdOp(top_k=2, prepare_finalize=Halves())
    with pytest.raises(Exception, match="FusedMoEFwdOp: its call does more than call sub-ops"):
        graphs.compile(op)(*layer(8))


def test_faults_of_a_call_are_raised_while_it_compiles(graphs):
    op = moe.FusedTopKFwdOp(top_k=2)
    cases = [
        ((torch.randn(8),), {}, "gating_output has shape [8]; the spec says [T, E]"),
        ((torch.randn(8, 4).double(),), {}, "gating_output has dtype float64"),
        ((torch.randn(8, 4).to(torch.complex64),), {}, "a tensor of torch.complex64 cannot be taken"),
        ((torch.randn(8, 4),), {"bias": torch.randn(4)}, "it takes no tensor bias; it takes: "),
        ((), {}, "gating_output is absent; the spec requires it"),
        ((torch.randn(8, 4, requires_grad=True),), {}, "gating_output requires grad, and the op has no"),
    ]
    for args, kwargs, text in cases:
        with pytest.raises(Exception) as fault:
            graphs.compile(lambda: op(*args, **kwargs))()
        assert text in str(fault.value), text
        torch._dynamo.reset()


def test_no_grad_and_inference_mode(graphs):
    op = moe.FusedTopKFwdOp(top_k=2)
    logits = torch.randn(8, 4, requires_grad=True)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert same_bits(graphs.compile(op)(logits)[1], op(logits)[1])


def test_inductor_serves_a_model_around_the_layer():
    op = moe.FusedMoEFwdOp(top_k=2, renormalize=True)

    def block(x, logits, w_gate_up, w_down):
        return x + op(x, logits, w_gate_up, w_down)

    tensors = layer(24)
    compiled = torch.compile(block, fullgraph=True, dynamic=True)
    torch.testing.assert_close(compiled(*tensors), block(*tensors))


PROCESS = """
import json, sys, torch, tileops_cpp
torch._inductor.config.fx_graph_cache = True
op = tileops_cpp.moe.FusedTopKFwdOp(top_k=int(sys.argv[1]))
logits = torch.arange(12.0).reshape(3, 4).cos()
weights, ids = torch.compile(lambda x: op(x), fullgraph=True)(logits)
print(json.dumps([ids.tolist(), op(logits)[1].tolist(), op.key]))
"""


def test_a_cache_that_outlives_the_process_mixes_up_no_ops(tmp_path):
    def run(top_k):
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, str(top_k)], env=env, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[0])

    found, wanted, key = run(2)
    assert found == wanted
    other, wanted, other_key = run(3)
    assert other == wanted and other_key != key
    assert run(2) == [found, found, key], "an equal op has an equal key: what was compiled serves again"


def test_a_recompile_is_none_of_the_second_calls(graphs):
    op = moe.FusedMoEFwdOp(top_k=2)
    compiled = graphs.compile(op)
    tensors = layer(8)
    for _ in range(3):
        compiled(*tensors)
    op(*tensors)  # an eager call between leaves the graph as it is
    compiled(*tensors)
    assert len(graphs.dynamo) == 1
    assert op.last_call() is not None


def test_sources_name_no_leaf():
    """Plans come from the trace: no name of an op stands in the package's code for PyTorch."""
    package = pathlib.Path(tileops_cpp.__file__).parent
    for name in ("compile.py", "fakes.py"):
        text = (package / name).read_text()
        assert not [cls.__name__ for cls in op_classes(composites=True) if cls.__name__ in text]
