# SPDX-License-Identifier: Apache-2.0
"""What the ops compute, in float64 NumPy, from the papers' formulas; and how far off a result is."""
import numpy as np


def rng(seed):
    return np.random.Generator(np.random.PCG64(seed))


def silu_and_mul(rows):
    gate, up = np.split(rows, 2, axis=-1)
    return gate / (1 + np.exp(-gate)) * up


def swigluoai(rows, alpha=1.702, limit=7.0):
    gate, up = rows[..., 0::2], rows[..., 1::2]
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return (up + 1) * gate / (1 + np.exp(-alpha * gate))


def mlp(x, w_gate_up, w_down, activation=silu_and_mul):
    x, w_gate_up, w_down = (np.asarray(t, np.float64) for t in (x, w_gate_up, w_down))
    return activation(x @ w_gate_up.T) @ w_down.T


def expert_mlp(x, w_gate_up, w_down, ends, activation=silu_and_mul):
    out = np.zeros(np.shape(x))
    begin = 0
    for expert, end in enumerate(ends):
        out[begin:end] = mlp(x[begin:end], w_gate_up[expert], w_down[expert], activation)
        begin = end
    return out


def softmax(x):
    x = np.asarray(x, np.float64)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def fused_moe(hidden, gating, w_gate_up, w_down, top_k, renormalize=False):
    scores = softmax(gating)
    ids = np.argsort(-scores, axis=-1, kind="stable")[:, :top_k]
    weights = np.take_along_axis(scores, ids, axis=-1)
    if renormalize:
        weights = weights / weights.sum(axis=-1, keepdims=True)
    out = np.zeros(np.shape(hidden))
    for t in range(len(out)):
        for k in range(top_k):
            expert = ids[t, k]
            out[t] += weights[t, k] * mlp(hidden[t], w_gate_up[expert], w_down[expert])
    return out, ids, weights


def error(got, wanted):
    """The norm of the difference, as a share of the norm of what is wanted."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    return float(np.linalg.norm(got - wanted) / max(np.linalg.norm(wanted), 1e-30))


# Largest error of a sum of products in each type, the intermediate rounded once.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2}
