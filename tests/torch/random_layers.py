#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random layers of the MoE family beside moe_definition.py, in float64.

    python3 tests/torch/random_layers.py CALL_SERVER [--count 1000] [--seed 0] [--only INDEX]

A configuration is drawn from its own seed, so that --only repeats one of a failed run.
"""
import argparse
import contextlib
import dataclasses
import math
import random
import sys
import time

import moe_definition
import torch
from server import LibraryError, Server

MOE, SHARED, EXPERTS = "FusedMoEFwdOp", "FusedMoESharedExpertFwdOp", "FusedMoEExpertsFwdOp"
BOUND = {torch.bfloat16: 5e-3, torch.float16: 1e-3}  # of the relative norm of the difference
FEW = 64  # columns of an output
NEAR_TIE = 1e-6  # scores that float32 need not tell apart
INT_MAX = 2**31 - 1
LARGEST = 1_500_000  # elements of an expert weight, products of a routed row's


def log_uniform(rng, low, high):
    return min(high, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))))


@dataclasses.dataclass
class Layer:
    """A configuration, and its tensors."""

    op: str
    params: dict
    tensors: dict
    dtype: torch.dtype
    options: dict  # how the library is called

    def __str__(self):
        shapes = {name: f"{str(t.dtype)[6:]}{list(t.shape)}" for name, t in self.tensors.items()}
        return f"{self.op} {self.params} {shapes} {self.options}"


class Drawer:
    """Draws one configuration."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.torch_rng = torch.Generator().manual_seed(seed)
        self.dtype = self.rng.choice([torch.bfloat16, torch.float16])
        self.params = {}
        self.tensors = {}

    def chance(self, probability):
        return self.rng.random() < probability

    def normal(self, *shape, scale=1.0):
        return torch.randn(*shape, generator=self.torch_rng, dtype=torch.float64) * scale

    def layer(self):
        op = self.rng.choices([MOE, SHARED, EXPERTS], [5, 2, 4])[0]
        self.draw_sizes()
        self.draw_experts()
        self.draw_routes() if op == EXPERTS else self.draw_router()
        if op == SHARED:
            self.draw_shared_expert()
        options = {
            "packed": self.chance(0.4),
            "implementation": "reference" if self.chance(0.05) else "",
            "transposed": [name for name in ("hidden_states", "w_gate_up", "w_down") if self.chance(0.1)],
        }
        if self.chance(0.2):
            self.params["batch_invariant"] = "true"
        return Layer(op, self.params, self.tensors, self.dtype, options)

    def draw_sizes(self):
        self.num_experts = log_uniform(self.rng, 1, 256)
        self.num_tokens = 0 if self.chance(0.04) else log_uniform(self.rng, 1, 300)
        self.hidden, self.inter = log_uniform(self.rng, 1, 400), log_uniform(self.rng, 1, 400)
        while self.num_experts * self.hidden * self.inter > LARGEST:
            self.hidden, self.inter = self.hidden // 2 + 1, self.inter // 2 + 1

    def draw_experts(self):
        e, h, f = self.num_experts, self.hidden, self.inter
        self.tensors["hidden_states"] = self.normal(self.num_tokens, h).to(self.dtype)
        self.tensors["w_gate_up"] = self.normal(e, 2 * f, h, scale=h**-0.5).to(self.dtype)
        self.tensors["w_down"] = self.normal(e, h, f, scale=f**-0.5).to(self.dtype)
        if self.chance(0.3):
            self.tensors["b_gate_up"] = self.normal(e, 2 * f, scale=0.5).to(self.dtype)
            self.tensors["b_down"] = self.normal(e, h, scale=0.5).to(self.dtype)
        alpha, limit = round(self.rng.uniform(0.5, 2), 3), round(self.rng.uniform(0.5, 3), 2)
        self.params["activation"] = self.rng.choice([
            "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", f"swigluoai{{alpha: {alpha}, limit: {limit}}}"])
        if self.chance(0.4):
            self.params["routed_scaling_factor"] = str(round(self.rng.uniform(0.1, 4), 3))

    def draw_routes(self):
        """Ids as they come: skewed, repeated, dropped; a token whose routes are all dropped holds NaN."""
        t, k = self.num_tokens, log_uniform(self.rng, 1, 12)
        skew = self.normal(self.num_experts).mul(self.rng.choice([0, 1, 4])).softmax(0)
        ids = torch.multinomial(skew, max(t * k, 1), replacement=True, generator=self.torch_rng)[: t * k].reshape(t, k)
        if self.chance(0.4):
            outside = torch.tensor([-1, self.num_experts, INT_MAX, -INT_MAX - 1])
            dropped = torch.rand(t, k, generator=self.torch_rng) < self.rng.choice([0.1, 0.5, 1])
            ids = torch.where(dropped, outside[torch.randint(4, (t, k), generator=self.torch_rng)], ids)
            lost = ((ids < 0) | (ids >= self.num_experts)).all(1)
            self.tensors["hidden_states"][lost] = torch.nan
        self.tensors["topk_ids"] = ids.to(torch.int32)
        self.tensors["topk_weights"] = self.normal(t, k).float()
        self.params["small_route"] = self.rng.choice(["auto", "always", "never"])

    def draw_router(self):
        e = self.num_experts
        routed = e
        if self.chance(0.2):  # this rank holds the first e of the routed experts
            routed = e * self.rng.randint(1, 3)
            self.params["num_local_experts"] = str(e)
        groups = self.rng.choice([n for n in range(1, routed + 1) if routed % n == 0]) if self.chance(0.4) else 1
        open_groups = self.rng.randint(1, groups)
        top_k = log_uniform(self.rng, 1, min(open_groups * (routed // groups), 16))
        sigmoid = self.chance(0.5)
        self.params |= {
            "top_k": str(top_k), "scoring_func": "sigmoid" if sigmoid else "softmax",
            "renormalize": self.rng.choice(["true", "false"]), "return_routing": "true",
            "num_expert_group": str(groups), "topk_group": str(open_groups)}
        skew = self.normal(routed, scale=self.rng.choice([0, 1, 4]))
        gating = self.rng.choice([torch.float32, torch.float16, torch.bfloat16])
        self.tensors["gating_output"] = (self.normal(self.num_tokens, routed) + skew).to(gating)
        if sigmoid and self.chance(0.5):
            self.tensors["correction_bias"] = self.normal(routed, scale=0.3).float()

    def draw_shared_expert(self):
        if self.chance(0.15):
            return
        size = self.rng.choice([1, 2, 3])
        inter = size * log_uniform(self.rng, 1, 100)
        self.params |= {"tp_size": str(size), "tp_rank": str(self.rng.randrange(size))}
        self.tensors["shared_w_gate_up"] = self.normal(2 * inter, self.hidden, scale=self.hidden**-0.5).to(self.dtype)
        self.tensors["shared_w_down"] = self.normal(self.hidden, inter, scale=inter**-0.5).to(self.dtype)


def activation_of(text):
    if not text.startswith("swigluoai"):
        return text
    fields = (field.split(":") for field in text[len("swigluoai{"):-1].split(","))
    return {name.strip(): float(value) for name, value in fields}


class Check:
    """What the definition says of a layer, beside what the library gave."""

    def __init__(self, layer, outputs):
        self.layer, self.outputs, self.faults = layer, outputs, []
        self.num_near_ties = 0
        routed = "routed_output" if layer.op == SHARED else "output"
        if layer.op == EXPERTS:
            ids, weights = layer.tensors["topk_ids"], layer.tensors["topk_weights"]
            scale = float(layer.params.get("routed_scaling_factor", 1))
            self.compare(routed, *self.routed(ids, weights, scale))
        else:
            self.check_routed_layer(routed)
        if "shared_w_down" in layer.tensors:
            self.compare("shared_output", *self.shared())

    def require(self, is_so, fault):
        if not is_so:
            self.faults.append(fault)

    def compare(self, name, want, uncancelled, rows=slice(None)):
        """By the norm; where few columns may cancel by chance, by that of their terms."""
        got, dtype = self.outputs[name], self.layer.dtype
        self.require(got.dtype == dtype and got.shape == want.shape, f"{name} is {got.dtype}{list(got.shape)}")
        error, norm = (got.double() - want)[rows].norm(), want[rows].norm()
        if want.shape[1] < FEW:
            norm = max(norm, uncancelled)
        self.require(bool(error <= BOUND[dtype] * norm), f"{name}: error {error:.3e} of norm {norm:.3e}")

    def routed(self, ids, weights, scale):
        names = ["w_gate_up", "w_down", "b_gate_up", "b_down"]
        tensors = [self.layer.tensors.get(name) for name in names]
        kind = activation_of(self.layer.params["activation"])
        return moe_definition.experts(self.layer.tensors["hidden_states"], weights, ids, kind, *tensors, scale=scale)

    def check_routed_layer(self, output):
        params, tensors = self.layer.params, self.layer.tensors
        router = dict(
            top_k=int(params["top_k"]), scoring_func=params["scoring_func"],
            renormalize=params["renormalize"] == "true", num_groups=int(params["num_expert_group"]),
            open_groups=int(params["topk_group"]), scale=float(params.get("routed_scaling_factor", 1)),
            bias=tensors.get("correction_bias"))
        logits = tensors["gating_output"]
        ids, weights = moe_definition.route(logits, **router)
        got_ids = self.outputs["topk_ids"]
        same = self.same_routes(got_ids, ids, router)
        counts = torch.bincount(got_ids.flatten().long(), minlength=logits.shape[1])
        self.require(torch.equal(self.outputs["tokens_per_expert"].long(), counts), "tokens_per_expert")
        self.compare(output, *self.routed(ids, weights, 1.0), same)

    def same_routes(self, got, want, router):
        """Tokens whose ids are the definition's, near ties aside: those may go either way."""
        router = {key: router[key] for key in ("scoring_func", "num_groups", "open_groups", "bias")}
        same = torch.ones(len(want), dtype=torch.bool)
        for token in torch.nonzero((got != want).any(1)).flatten().tolist():
            same[token] = sorted(got[token].tolist()) == sorted(want[token].tolist())
            is_tie = self.is_near_tie(token, got[token].tolist(), want[token].tolist(), router)
            self.require(is_tie, f"token {token}: ids {got[token].tolist()}, not {want[token].tolist()}")
            self.num_near_ties += 1
        return same

    def is_near_tie(self, token, got, want, router):
        logits = self.layer.tensors["gating_output"][token : token + 1]
        if len(set(got)) < len(got) or not all(0 <= e < logits.shape[1] for e in got):
            return False
        _, choice = moe_definition.scores(logits, router["scoring_func"], router["bias"])
        at = moe_definition.open_experts(
            choice, router["num_groups"], router["open_groups"], router["bias"] is not None)[0]
        return all(abs(at[a] - at[b]) <= NEAR_TIE for a, b in zip(got, want))

    def shared(self):
        tensors, params = self.layer.tensors, self.layer.params
        size, rank = int(params["tp_size"]), int(params["tp_rank"])
        gate, up = (half.chunk(size)[rank] for half in tensors["shared_w_gate_up"].chunk(2))
        down = tensors["shared_w_down"].chunk(size, 1)[rank]
        num_tokens = len(tensors["hidden_states"])
        one = torch.ones(num_tokens, 1)
        return moe_definition.experts(
            tensors["hidden_states"], one, one.long() * 0, "silu_and_mul", torch.cat([gate, up])[None], down[None])


def isa_levels(program):
    """The CPU's own instruction set (""), and the lesser ones that it has."""
    one, two = (torch.ones(1, rows, 1, dtype=torch.bfloat16) for rows in (1, 2))
    tensors = {
        "hidden_states": one[0].clone(), "w_gate_up": two, "w_down": one,
        "topk_weights": torch.ones(1, 1), "topk_ids": torch.zeros(1, 1, dtype=torch.int32)}
    have = [""]
    for level in ["avx512", "avx2", "sse4", "baseline"]:
        with Server(program, level) as server:
            try:
                server.call(EXPERTS, {}, tensors)
                have.append(level)
            except LibraryError as error:
                if "TILEOPS_CPU_ISA must be at most" not in str(error):
                    raise
    return have


def run(program, indices):
    """How many layers failed, tokens had a near tie, tokens there were; and the instruction sets."""
    levels = isa_levels(program)
    failed, near_ties, tokens = 0, 0, 0
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(program, level)) for level in levels]
        for index in indices:
            layer = Drawer(index).layer()
            server = servers[index % len(servers)]
            check = Check(layer, server.call(layer.op, layer.params, layer.tensors, **layer.options))
            near_ties += check.num_near_ties
            tokens += len(layer.tensors["hidden_states"])
            failed += len(check.faults) > 0
            for fault in check.faults:
                print(f"configuration {index} by {server.isa or 'auto'}, {layer}: {fault}")
    return failed, near_ties, tokens, ", ".join(level or "the CPU's own" for level in levels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    indices = range(args.seed, args.seed + args.count) if args.only is None else [args.only]
    torch.set_num_threads(1)  # small products: threads would wait for each other
    start = time.monotonic()
    failed, near_ties, tokens, levels = run(args.program, indices)
    print(f"{len(indices)} random layers ({tokens} tokens; instruction sets: {levels}) in "
          f"{time.monotonic() - start:.0f} s: {failed} failed; {near_ties} tokens with a near tie")
    sys.exit(failed > 0 or near_ties > tokens / 1000)


if __name__ == "__main__":
    main()
