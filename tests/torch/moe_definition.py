# SPDX-License-Identifier: Apache-2.0
"""The MoE layer by its definition, in float64 on the CPU: routing, experts, combination."""
import torch
from torch.nn import functional

DOUBLE = torch.float64


def activate(kind, gate, up):
    if kind == "silu_and_mul":
        return functional.silu(gate) * up
    if kind == "gelu_and_mul":
        return functional.gelu(gate) * up
    if kind == "gelu_tanh_and_mul":
        return functional.gelu(gate, approximate="tanh") * up
    gate, up = gate.clamp(max=kind["limit"]), up.clamp(-kind["limit"], kind["limit"])
    return gate * torch.sigmoid(kind["alpha"] * gate) * (up + 1)


def activated(x, kind, w_gate_up, b_gate_up=None):
    """act(gate) · up of one expert for rows x [R, H]: [R, F]."""
    gate_up = functional.linear(x, w_gate_up, b_gate_up)
    gate, up = gate_up.chunk(2, -1) if isinstance(kind, str) else (gate_up[:, 0::2], gate_up[:, 1::2])
    return activate(kind, gate, up)


def experts(hidden, weights, ids, kind, w_gate_up, w_down, b_gate_up=None, b_down=None, scale=1.0):
    """Σ_k weights[t, k] · expert(ids[t, k]), times scale: [T, H]; ids outside [0, E) count nothing.

    And the norm that it would have if the terms of its last sums did not cancel."""
    out = torch.zeros(hidden.shape, dtype=DOUBLE)
    squares = 0.0
    for e in range(w_down.shape[0]):
        token, k = torch.nonzero(ids == e, as_tuple=True)
        if len(token) == 0:
            continue
        gate_up_bias, down_bias = (None if bias is None else bias[e].to(DOUBLE) for bias in (b_gate_up, b_down))
        down = w_down[e].to(DOUBLE)
        inner = activated(hidden[token].to(DOUBLE), kind, w_gate_up[e].to(DOUBLE), gate_up_bias)
        weight = weights[token, k, None].to(DOUBLE)
        out.index_add_(0, token, functional.linear(inner, down, down_bias) * weight)
        squares += functional.linear((inner * weight) ** 2, down**2).sum()
    return scale * out, scale * torch.as_tensor(squares).sqrt()


def scores(logits, scoring_func, bias=None):
    """(weights before the choice, what the choice goes by), float64 [T, E]."""
    logits = logits.to(DOUBLE)
    if scoring_func == "softmax":
        return logits.softmax(-1), logits
    weights = logits.sigmoid()
    return weights, weights if bias is None else weights + bias.to(DOUBLE)


def open_experts(choice, num_groups, open_groups, sums_two):
    """`choice` with -inf for the experts of closed groups."""
    if num_groups == 1:
        return choice
    grouped = choice.unflatten(-1, (num_groups, -1))
    best = grouped.topk(min(2 if sums_two else 1, grouped.shape[-1]), -1).values.sum(-1)
    kept = best.sort(dim=-1, descending=True, stable=True).indices[:, :open_groups]
    is_open = torch.zeros(best.shape, dtype=torch.bool).scatter_(1, kept, True)
    return grouped.masked_fill(~is_open[..., None], -torch.inf).flatten(-2)


def route(logits, top_k, scoring_func, renormalize, num_groups=1, open_groups=1, scale=1.0, bias=None):
    """(ids [T, top_k], best first, weights float64 [T, top_k]); ties go to the lower id."""
    weights, choice = scores(logits, scoring_func, bias)
    choice = open_experts(choice, num_groups, open_groups, bias is not None)
    ids = choice.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]
    chosen = weights.gather(1, ids)
    if renormalize:
        chosen = chosen / chosen.sum(-1, keepdim=True)
    return ids, chosen * scale
