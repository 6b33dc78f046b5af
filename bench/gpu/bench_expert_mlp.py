# SPDX-License-Identifier: Apache-2.0
"""Times both grouped GEMMs of an expert MLP: the second one waiting for all of the first, and awaiting its rows (+).

    python3 bench/gpu/bench_expert_mlp.py MODEL/T[.T...]:TILE[,TILE...] ...

MODEL is one of SHAPES, T tokens; tiles as in bench_grouped_gemm.py. Microseconds, medians of single calls, each after a
flush of L2, and in parentheses of back-to-back calls in one CUDA graph; all of a row in turn.
"""
import sys

import torch

import bench_grouped_gemm as bench
import grouped_gemm as gg

# experts, hidden, inter, top_k
SHAPES = {"shared": (1, 7168, 2048, 1), "qwen": (128, 2048, 768, 8), "mixtral": (8, 4096, 14336, 2),
          "deepseek": (256, 7168, 2048, 8)}


def configs_of(tile):
    tile = bench.parse_tile(tile)
    return gg.Config(activation="silu_and_mul", **tile), gg.Config(**tile)


def random_weights(experts, n, k):
    b = torch.empty(experts, n, k, dtype=torch.bfloat16, device="cuda")
    for expert in range(0, experts, 8):
        b[expert:expert + 8].normal_(std=k ** -0.5)
    return b


class Mlp:
    """One prepared call of both GEMMs."""

    def __init__(self, tile, awaits, x, w_gate_up, w_down):
        self.rows, metadata, kind, max_m, self.first, self.counts = x
        self.weights = w_gate_up, w_down
        up, down = configs_of(tile)
        empty = lambda columns: torch.full((self.rows.shape[0], columns), float("nan"), dtype=torch.bfloat16,
                                           device="cuda")
        self.hidden, self.out = empty(w_down.shape[2]), empty(w_down.shape[1])
        self.up = gg.Call(up, self.rows, w_gate_up, metadata, self.hidden, kind, 1, max_m, programmatic=True)
        self.down = gg.Call(down, self.hidden, w_down, metadata, self.out, kind, 1, max_m, programmatic=True,
                            after=self.up if awaits else None)

    def __call__(self):
        self.up()
        self.down()

    def error(self):
        """Of sampled experts, relative; the counters must be 0 again."""
        self()
        check = lambda out, a, b, activation: bench.check_sampled(out, a, b, self.first, self.counts, activation)
        worst = max(check(self.hidden, self.rows, self.weights[0], "silu_and_mul"),
                    check(self.out, self.hidden, self.weights[1], "none"))
        counters = getattr(self.down, "counters", None)
        return worst if counters is None or not counters.any() else float("inf")


def bench_row(name, tokens, tiles, weights):
    experts, hidden, _, top_k = SHAPES[name]
    copies = 4 if tokens <= 32 else 2
    inputs = [bench.make_inputs(tokens, top_k, False, experts, hidden) for _ in range(copies)]
    variants = [(tile, awaits) for tile in tiles for awaits in (False, True)]
    calls = [[Mlp(*variant, x, *weights) for x in inputs] for variant in variants]
    errors = [max(of_variant[0].error() for _ in range(2)) for of_variant in calls]
    cold = bench.medians([of_variant[0] for of_variant in calls], bench.flush)
    graphs = [bench.capture(of_variant) for of_variant in calls]
    together = bench.medians([graph.replay for graph in graphs])
    text = "  ".join(f"{tile}{'+' if awaits else ''} {single * 1e3:.1f} ({many / copies * 1e3:.1f})"
                     f"{'' if error < 6e-3 else f' BAD {error:.1e}'}"
                     for (tile, awaits), single, many, error in zip(variants, cold, together, errors))
    print(f"{name} T={tokens}: {text}", flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(7)
    jobs = [argument.split(":") for argument in sys.argv[1:]]
    gg.build([config for _, tiles in jobs for tile in tiles.split(",") for config in configs_of(tile)])
    bench.calibrate()
    for rows, tiles in jobs:
        name, tokens = rows.split("/")
        experts, hidden, inter, _ = SHAPES[name]
        torch.cuda.empty_cache()
        weights = random_weights(experts, 2 * inter, hidden), random_weights(experts, hidden, inter)
        for count in tokens.split("."):
            bench_row(name, int(count), tiles.split(","), weights)
        del weights


if __name__ == "__main__":
    main()
