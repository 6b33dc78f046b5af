# SPDX-License-Identifier: Apache-2.0
"""experts_implementation="tileops" in the models of transformers, beside their own eager experts."""
import copy
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

import tileops_cpp.transformers  # noqa: E402, F401
from tiny_models import (  # noqa: E402
    CONFIGS,
    experts_modules,
    largest_difference,
    logits_and_routes,
    make_model,
    make_tokens,
)

FAMILIES = sorted(CONFIGS)
TOLERANCE = 2e-2  # of logits, in bfloat16


def both(model, call):
    """What `call` gives with the eager experts, and with ours."""
    with torch.no_grad():
        model.set_experts_implementation("eager")
        eager = call(model)
        model.set_experts_implementation("tileops")
        return eager, call(model)


def relative_error(got, want):
    return ((got - want).norm() / want.norm()).item()


def definition(experts, hidden, ids, weights):
    """The experts' weighted sum in float64, a route at a time; other ids than the experts' are dropped."""
    gate_up, down = experts.gate_up_proj.double(), experts.down_proj.double()
    if experts.is_transposed:
        gate_up, down = gate_up.transpose(1, 2), down.transpose(1, 2)
    out = torch.zeros(hidden.shape, dtype=torch.float64)
    for token in range(hidden.shape[0]):
        for expert, weight in zip(ids[token].tolist(), weights[token].double()):
            if not 0 <= expert < experts.num_experts:
                continue
            projected = gate_up[expert] @ hidden[token].double()
            if experts.has_bias:
                projected += experts.gate_up_proj_bias[expert].double()
            if experts.is_concatenated:
                gate, up = projected.chunk(2)
                activated = gate * torch.sigmoid(gate) * up
            else:
                gate, up = projected[::2].clamp(max=7.0), projected[1::2].clamp(-7.0, 7.0)
                activated = gate * torch.sigmoid(1.702 * gate) * (up + 1)
            result = down[expert] @ activated
            if experts.has_bias:
                result += experts.down_proj_bias[expert].double()
            out[token] += weight * result
    return out


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_experts_compute_their_definition(family, dtype):
    experts = experts_modules(make_model(family, dtype, experts_implementation="tileops"))[0]
    generator = torch.Generator().manual_seed(3)
    for tokens in (0, 1, 33):
        hidden = torch.randn(tokens, 64, generator=generator).to(dtype)
        ids = torch.randint(0, experts.num_experts + 1, (tokens, 2), generator=generator)
        weights = torch.rand(tokens, 2, generator=generator)
        with torch.no_grad():
            got = experts(hidden, ids, weights)
            want = definition(experts, hidden, ids, weights)
        assert got.shape == hidden.shape and got.dtype == dtype
        if tokens:
            assert relative_error(got.double(), want) < (5e-3 if dtype == torch.bfloat16 else 1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_prefill_logits_are_those_of_the_eager_experts(family):
    eager, ours = both(make_model(family), lambda model: logits_and_routes(model, make_tokens()))
    assert largest_difference(eager, ours) <= TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
def test_generation_with_a_cache_gives_the_same_tokens(family):
    model, prompt = make_model(family, seed=5), make_tokens((4, 9))
    eager, ours = both(
        model,
        lambda model: model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=12,
            do_sample=False,
            return_dict_in_generate=True,
        ),
    )
    equal_rows = 0
    for row in range(4):
        differs = (eager.sequences[row] != ours.sequences[row]).nonzero()
        equal_rows += len(differs) == 0
        if len(differs):  # from the first tie on, of tokens or of routes, the texts go their own ways
            position = differs[0].item()
            before, after = both(model, lambda m: logits_and_routes(m, eager.sequences[row : row + 1, :position]))
            chosen = [sequence[row, position] for sequence in (eager.sequences, ours.sequences)]
            margin = before[0][0, -1, chosen[0]] - before[0][0, -1, chosen[1]]
            assert margin.item() <= TOLERANCE or not torch.equal(before[1], after[1])
    assert equal_rows >= 1  # how many have no tie in them depends on the CPU's roundings


def test_the_implementation_is_chosen_when_the_model_is_made():
    model = make_model("mixtral", experts_implementation="tileops")
    assert model.config._experts_implementation == "tileops"
    with torch.no_grad():
        chosen = model(make_tokens()).logits
        assert torch.equal(chosen, both(model, lambda m: m(make_tokens()).logits)[1])


@pytest.mark.parametrize("family", ["mixtral", "gpt_oss"])
def test_weights_loaded_in_place_are_seen(family):
    model, other = make_model(family, experts_implementation="tileops"), make_model(family, seed=8)
    with torch.no_grad():
        before = model(make_tokens()).logits
        model.load_state_dict(copy.deepcopy(other.state_dict()))
        other.set_experts_implementation("tileops")
        after = model(make_tokens()).logits
        assert torch.equal(after, other(make_tokens()).logits)
        assert not torch.equal(after, before)


def test_ids_past_the_experts_are_dropped():
    experts = experts_modules(make_model("qwen3_moe", experts_implementation="tileops"))[0]
    hidden = torch.randn(5, 64).bfloat16()
    weights, sentinel = torch.rand(5, 2), experts.num_experts
    with torch.no_grad():
        none = experts(hidden, torch.full((5, 2), sentinel), weights)
        first = experts(hidden, torch.tensor([[1, sentinel]] * 5), weights)
        alone = experts(hidden, torch.tensor([[1]] * 5), weights[:, :1].contiguous())
    assert torch.equal(none, torch.zeros_like(none))
    assert torch.equal(first, alone)


def test_strided_hidden_states_are_read_as_they_lie():
    experts = experts_modules(make_model("mixtral", experts_implementation="tileops"))[0]
    wide = torch.randn(7, 128).bfloat16()
    ids, weights = torch.randint(0, 4, (7, 2)), torch.rand(7, 2)
    with torch.no_grad():
        strided = experts(wide[:, ::2], ids, weights)
        assert torch.equal(strided, experts(wide[:, ::2].contiguous(), ids, weights))


def test_gradients_are_refused_by_name():
    model = make_model("mixtral", experts_implementation="tileops")
    with pytest.raises(Exception, match="requires grad"):
        model(make_tokens())


def test_an_activation_that_the_library_lacks_is_named():
    from transformers import AutoModelForCausalLM

    config = CONFIGS["mixtral"]()
    config.hidden_act = "relu"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, experts_implementation="tileops")
    with torch.no_grad(), pytest.raises(ValueError, match="MixtralExperts: its gate .*ReLU"):
        model(make_tokens())


def test_float32_is_refused_with_the_dtypes_that_are_served():
    model = make_model("mixtral", torch.float32, experts_implementation="tileops")
    with torch.no_grad(), pytest.raises(TypeError, match="float16.*bfloat16"):
        model(make_tokens())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_compiles_whole(family):
    torch._dynamo.reset()
    model = make_model(family, experts_implementation="tileops")
    with torch.no_grad():
        eager = model(make_tokens(), use_cache=False).logits
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(make_tokens(), use_cache=False).logits, eager)


def test_the_quickstart_runs():
    script = pathlib.Path(__file__).parents[2] / "examples" / "transformers_quickstart.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "of the best tokens equal" in done.stdout
