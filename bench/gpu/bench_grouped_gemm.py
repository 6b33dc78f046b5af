# SPDX-License-Identifier: Apache-2.0
"""Times the grouped GEMM kernels on the rows of the performance table, checked on sampled experts.

    python3 bench/gpu/bench_grouped_gemm.py [--rows TEXT,...] [--tiles TILE,...] [--peers]

A tile is features x rows x stages c ctas, as 128x128x6c2; p: ping-pong, a: any strides. Times are
medians of single calls, each after a flush of L2, and in parentheses of back-to-back calls in one
CUDA graph; the tiles of a row in turn.
"""
import argparse
import functools
import re
import statistics

import torch

import grouped_gemm as gg

PEAK_TFLOPS, PEAK_TBPS = 790.0, 4.3


def route(tokens, top_k, experts, zipf):
    """Rows of each expert: every token takes top_k distinct experts."""
    weights = 1.0 / torch.arange(1, experts + 1, device="cuda").float() if zipf else torch.ones(
        experts, device="cuda")
    order = torch.randperm(experts, device="cuda")
    scores = weights.log() - torch.empty(tokens, experts, device="cuda").exponential_().log()
    ids = order[scores.topk(top_k, dim=1).indices]
    return torch.bincount(ids.flatten(), minlength=experts).tolist()


# name: experts, n, k, activation, tokens, top_k, zipf, goal ms, best peer ms (of this GEMM alone)
def rows():
    yield "g7168-4096 P4096", 256, 4096, 7168, "none", 512, 8, False, 3.33, 3.36
    yield "g7168-4096 P4096z", 256, 4096, 7168, "none", 512, 8, True, 3.45, 3.74
    yield "g7168-4096 P32768", 256, 4096, 7168, "none", 4096, 8, False, 4.00, 4.61
    yield "g7168-4096 P32768z", 256, 4096, 7168, "none", 4096, 8, True, 4.10, 5.27
    yield "g2048-7168 P4096", 256, 7168, 2048, "none", 512, 8, False, 1.72, 1.77
    yield "g2048-7168 P4096z", 256, 7168, 2048, "none", 512, 8, True, 1.76, 1.87
    yield "g2048-7168 P32768", 256, 7168, 2048, "none", 4096, 8, False, 2.08, 2.34
    yield "g2048-7168 P32768z", 256, 7168, 2048, "none", 4096, 8, True, 2.15, 2.53
    yield "masked half", 32, 4096, 7168, "none", "half", 128, False, 0.445, 0.479
    yield "masked full", 32, 4096, 7168, "none", "full", 128, False, 0.455, 0.481
    yield "shared up", 1, 4096, 7168, "silu_and_mul", 4096, 1, False, 0, 0
    yield "shared down", 1, 7168, 2048, "none", 4096, 1, False, 0, 0
    for tokens in (1, 16, 128, 1024, 8192):
        yield f"qwen up T{tokens}", 128, 1536, 2048, "silu_and_mul", tokens, 8, False, 0, 0
        yield f"qwen down T{tokens}", 128, 2048, 768, "none", tokens, 8, False, 0, 0
    for tokens in (1, 16, 128, 1024, 8192):
        yield f"mixtral up T{tokens}", 8, 28672, 4096, "silu_and_mul", tokens, 2, False, 0, 0
        yield f"mixtral down T{tokens}", 8, 4096, 14336, "none", tokens, 2, False, 0, 0
    for tokens in (1, 32, 128, 512, 4096):
        yield f"dsv3 up T{tokens}", 256, 4096, 7168, "silu_and_mul", tokens, 8, False, 0, 0
        yield f"dsv3 down T{tokens}", 256, 7168, 2048, "none", tokens, 8, False, 0, 0


def parse_tile(text):
    features, tile_rows, stages, ctas = map(int, re.split("[xc]", text.rstrip("ap")))
    return dict(tile_features=features, tile_rows=tile_rows, stages=stages, ctas=ctas, ping_pong="p" in text,
                load=int("a" in text))


def once(call):
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    call()
    events[1].record()
    events[1].synchronize()
    return events[0].elapsed_time(events[1])


def medians(calls, before=lambda: None, budget_ms=50.0):
    """Median ms of each, measured in turn: clocks drift with the load of the last second."""
    times = [[] for _ in calls]
    while len(times[0]) < 3 or (sum(times[0]) < budget_ms and len(times[0]) < 40):
        for call, of_call in zip(calls, times):
            before()
            of_call.append(once(call))
    return [statistics.median(of_call) for of_call in times]


@functools.cache
def flush_buffer():
    return torch.empty(1 << 28, dtype=torch.uint8, device="cuda")


def flush():
    flush_buffer().add_(1)


def capture(calls):
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


_weights = {}


def weights(experts, n, k):
    key = (experts, n, k)
    if key not in _weights:
        _weights.clear()
        torch.cuda.empty_cache()
        b = torch.empty(experts, n, k, dtype=torch.bfloat16, device="cuda")
        for expert in range(0, experts, 8):
            b[expert:expert + 8].normal_(std=k ** -0.5)
        _weights[key] = b
    return _weights[key]


def make_inputs(tokens, top_k, zipf, experts, k):
    """(a, metadata, kind, max_m, first rows, counts)"""
    if isinstance(tokens, str):
        max_m = top_k
        counts = [max_m if tokens == "full" else max_m // 2] * experts
        metadata, kind = counts, "masked"
        first, rows = [e * max_m for e in range(experts)], experts * max_m
    else:
        counts, max_m, kind = route(tokens, top_k, experts, zipf), 0, "psum"
        ends = torch.tensor(counts).cumsum(0).tolist()
        first, rows, metadata = [e - c for e, c in zip(ends, counts)], ends[-1], ends
    a = torch.randn(rows, k, dtype=torch.bfloat16, device="cuda")
    meta = torch.tensor(metadata, dtype=torch.int32, device="cuda")
    return a, meta, kind, max_m, first, counts


def check_sampled(out, a, b, first, counts, activation):
    worst = 0.0
    used = [e for e, c in enumerate(counts) if c]
    for expert in [used[0], used[len(used) // 2], used[-1], max(used, key=lambda e: counts[e])]:
        single = [counts[e] if e == expert else 0 for e in range(len(counts))]
        want = gg.reference(a, b, first, single, activation)[expert]
        got = out[first[expert]:first[expert] + counts[expert]].float()
        error = ((got - want).norm() / want.norm()).item()
        worst = max(worst, error if error == error else float("inf"))
    return worst


def bench_row(row, tiles, peers, options):
    name, experts, n, k, activation, tokens, top_k, zipf, goal, peer = row
    b = weights(experts, n, k)
    copies = 4 if isinstance(tokens, int) and tokens <= 32 else 2
    inputs = [make_inputs(tokens, top_k, zipf, experts, k) for _ in range(copies)]
    features = n if activation == "none" else n // 2
    outs = [torch.full((x[0].shape[0], features), float("nan"), dtype=torch.bfloat16,
                       device="cuda") for x in inputs]
    used = statistics.mean(sum(1 for c in x[5] if c) for x in inputs)
    total = inputs[0][0].shape[0] if not isinstance(tokens, str) else sum(inputs[0][5])
    read = (used * n * k + total * (k + features)) * 2
    floor = max(read / PEAK_TBPS * 1e-9, 2 * total * n * k / PEAK_TFLOPS * 1e-9)
    configs = [gg.Config(activation=activation, **tile) for tile in tiles]
    calls = [[gg.Call(config, x[0], b, x[1], out, x[2], 1, x[3], **options) for x, out in zip(inputs, outs)]
             for config in configs]
    errors = []
    for of_config in calls:
        outs[0].fill_(float("nan"))
        of_config[0]()
        errors.append(check_sampled(outs[0], inputs[0][0], b, inputs[0][4], inputs[0][5], activation))
    cold = medians([of_config[0] for of_config in calls], flush)
    graphs = [capture(of_config) for of_config in calls]
    together = [time / copies for time in medians([graph.replay for graph in graphs])]
    results = [(min(times), config.tile(), *times, error)
               for config, error, *times in zip(configs, errors, cold, together)]
    text = "  ".join(f"{tile} {cold:.4f} ({graph:.4f}){'' if error < 6e-3 else ' BAD %.1e' % error}"
                     for _, tile, cold, graph, error in results)
    best = min(results)[0]
    print(f"{name:19s} floor {floor:.4f} best {best:.4f} {floor / best * 100:5.1f}% "
          f"{2 * total * n * k / best * 1e-9:5.0f}TF {read / best * 1e-9:4.2f}TB/s "
          f"goal {goal} peer {peer} | {text}", flush=True)
    if peers and inputs[0][2] == "psum":
        mm = lambda x: torch._grouped_mm(x[0], b.transpose(1, 2), offs=x[1])
        print(f"{'':19s} torch._grouped_mm {medians([lambda: mm(inputs[0])], flush)[0]:.4f}", flush=True)


def calibrate():
    """What this unit reaches: units differ by 10 % where power is the limit."""
    x = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    y = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    (dense,) = medians([lambda: torch.mm(x, y)], flush, 200.0)
    source = torch.empty(1 << 32, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    (copy,) = medians([lambda: target.copy_(source)], flush)
    print(f"dense 8192^3 {2 * 8192**3 / dense * 1e-9:.0f} TFLOP/s, "
          f"copy {2 * source.numel() / copy * 1e-9:.2f} TB/s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="")
    parser.add_argument("--tiles", default="128x128x6c2p,128x176x5c2p")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--programmatic", action="store_true")
    parser.add_argument("--split-cost", type=int)
    parser.add_argument("--grid", type=int)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(5)
    tiles = [parse_tile(t) for t in options.tiles.split(",")]
    chosen = [r for r in rows() if any(t in r[0] for t in options.rows.split(","))]
    gg.build([gg.Config(activation=r[4], **t) for r in chosen for t in tiles])
    calibrate()
    torch.cuda.empty_cache()
    chosen.sort(key=lambda r: (r[1], r[2], r[3]))
    for row in chosen:
        bench_row(row, tiles, options.peers,
                  dict(programmatic=options.programmatic, split_cost=options.split_cost,
                       grid=options.grid))


if __name__ == "__main__":
    main()
