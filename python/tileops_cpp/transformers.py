# SPDX-License-Identifier: Apache-2.0
"""The experts of Hugging Face transformers' MoE models (v5), computed by FusedMoEExpertsFwdOp.

Importing this module registers `experts_implementation="tileops"`:

    import tileops_cpp.transformers
    model = AutoModelForCausalLM.from_pretrained(name, dtype="bfloat16", experts_implementation="tileops")
    model.set_experts_implementation("tileops")        # or later; "eager" goes back

It serves experts modules that follow transformers' experts contract (`use_experts_implementation`): stacked
`gate_up_proj` and `down_proj`, concatenated or interleaved, transposed or not, with or without biases, in
float16 or bfloat16, without gradients. Weights are read where they lie at each call, so that loading new
ones in place is seen. A routed id outside `[0, num_experts)`, as expert parallelism passes, is dropped.
Source: transformers/integrations/moe.py.
"""
import types

import torch
from transformers.activations import ACT2FN
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from tileops_cpp import GatedActivation, moe

NAME = "tileops"

_PROBE_COLUMNS = 8


def _gated(act_name):
    act = ACT2FN[act_name]
    return lambda gate, up: act(gate) * up


def _swigluoai(alpha, limit):
    def gated(gate, up):
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)

    return gated


def _candidates(alpha, limit):
    """(activation, its definition on gate and up) for each that the library computes."""
    yield GatedActivation.silu_and_mul, _gated("silu")
    yield GatedActivation.gelu_and_mul, _gated("gelu")
    yield GatedActivation.gelu_tanh_and_mul, _gated("gelu_pytorch_tanh")
    if alpha is not None and limit is not None:
        yield GatedActivation.swigluoai(alpha=alpha, limit=limit), _swigluoai(alpha, limit)


def _activation_of(experts_class, act_class, alpha, limit, is_concatenated):
    """The activation that the class's `_apply_gate` computes, told by what it gives on a probe."""
    probe = torch.linspace(-9, 9, 16 * _PROBE_COLUMNS).reshape(-1, _PROBE_COLUMNS).double()
    probe = torch.cat([probe, probe.roll(5, 0)], dim=0)
    gate, up = probe.chunk(2, dim=-1) if is_concatenated else (probe[:, ::2], probe[:, 1::2])
    try:
        stand_in = types.SimpleNamespace(act_fn=act_class(), alpha=alpha, limit=limit)
        computed = experts_class._apply_gate(stand_in, probe)
    except (AttributeError, TypeError):
        computed = None  # a gate of its own kind
    for activation, definition in _candidates(alpha, limit):
        if computed is not None and torch.allclose(computed, definition(gate, up), rtol=1e-6, atol=1e-9):
            return activation
    raise ValueError(
        f"{experts_class.__name__}: its gate (act_fn {act_class.__name__}) is none that FusedMoEExpertsFwdOp "
        f"computes (silu, gelu or gelu_pytorch_tanh of the gate times up, swigluoai); "
        f'set experts_implementation="eager"'
    )


_keys = {}  # kind of experts -> key in _ops
_ops = {}


@torch._dynamo.assume_constant_result
def _key_of(*kind):
    """The key in _ops of the op of a kind of experts (_activation_of's arguments), which is made once."""
    if kind not in _keys:
        activation = _activation_of(*kind)
        key = repr(activation)
        if key not in _ops:
            _ops[key] = moe.FusedMoEExpertsFwdOp(activation=activation)
        _keys[kind] = key
    return _keys[kind]


def _kind_of(experts):
    if not experts.has_gate:
        raise ValueError(
            f"{type(experts).__name__}: experts without a gate are not served; "
            f'set experts_implementation="eager"'
        )
    return (
        type(experts),
        type(getattr(experts, "act_fn", None)),
        getattr(experts, "alpha", None),
        getattr(experts, "limit", None),
        experts.is_concatenated,
    )


def experts_forward(experts, hidden_states, top_k_index, top_k_weights):
    """The weighted sum of each token's experts, `[T, H]` in hidden_states' dtype.

    hidden_states `[T, H]` float16 or bfloat16; top_k_index `[T, K]` integers; top_k_weights `[T, K]` floats.
    Errors: ValueError for experts that are not served, the op's own for anything else.
    """
    w_gate_up, w_down = experts.gate_up_proj, experts.down_proj
    if experts.is_transposed:
        w_gate_up, w_down = w_gate_up.transpose(1, 2), w_down.transpose(1, 2)
    biases = {}
    if experts.has_bias:
        biases = {"b_gate_up": experts.gate_up_proj_bias, "b_down": experts.down_proj_bias}
    return _ops[_key_of(*_kind_of(experts))](
        hidden_states,
        top_k_weights.to(torch.float32),
        top_k_index.to(torch.int32),
        w_gate_up,
        w_down,
        **biases,
    )


ALL_EXPERTS_FUNCTIONS.register(NAME, experts_forward)
