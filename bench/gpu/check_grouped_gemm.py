# SPDX-License-Identifier: Apache-2.0
"""Checks the grouped GEMM kernels against float32 on a grid of layouts, sizes and tile parities.

    timeout -s KILL 120 python3 bench/gpu/check_grouped_gemm.py [quick]
"""
import random
import sys

import torch

import grouped_gemm as gg

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
TILES = [dict(tile_rows=64, stages=8, ctas=1),
         dict(tile_rows=128, stages=6, ctas=1),
         dict(tile_rows=176, stages=5, ctas=2, ping_pong=True),
         dict(tile_features=256, tile_rows=64, stages=5, ctas=1),
         dict(tile_rows=128, stages=6, ctas=2, ping_pong=True)]
STRIDED = dict(tile_rows=64, stages=8, ctas=1, load=1)


def layout(kind, counts, alignment, max_m):
    """(first rows, number of rows, metadata) of experts with `counts` rows."""
    if kind == "masked":
        return [e * max_m for e in range(len(counts))], len(counts) * max_m, counts
    first, ends, at = [], [], 0
    for count in counts:
        at = (at + alignment - 1) // alignment * alignment
        first.append(at)
        at += count
        ends.append(at)
    rows = (at + alignment - 1) // alignment * alignment
    return first, rows, ends


def per_row_ids(first, counts, rows, experts):
    ids = torch.full((rows,), experts, dtype=torch.int32)
    for expert, (begin, count) in enumerate(zip(first, counts)):
        end = next((f for f, c in zip(first[expert + 1:], counts[expert + 1:]) if c), None)
        ids[begin:begin + count] = expert
        if count and end is not None:
            ids[begin + count:end] = expert
    return ids


def check(config, kind, counts, n, k, alignment=1, max_m=0, repeats=2, seed=0, split_cost=None):
    torch.manual_seed(seed)
    experts = len(counts)
    first, rows, metadata = layout(kind, counts, alignment, max_m)
    a = torch.full((max(rows, 1), k), float("nan"), dtype=config.in_type, device="cuda")
    for begin, count in zip(first, counts):
        a[begin:begin + count].normal_()
    b = torch.randn(experts, n, k, device="cuda").mul_(k ** -0.5).to(config.in_type)
    bias = torch.randn(experts, n, device="cuda").to(config.in_type) if config.bias else None
    features = n if config.activation == "none" else n // 2
    pad = 16 // config.out_type.itemsize if config.load == 0 else 3
    backing = torch.empty(rows + 3, features + pad, dtype=config.out_type, device="cuda")
    out = backing[1:rows + 2, :features]
    if kind == "per_row":
        meta = per_row_ids(first, counts, rows, experts).cuda()
        meta, launch_kind = gg.per_row_segments(config, meta, experts), "segments"
    else:
        meta, launch_kind = torch.tensor(metadata, dtype=torch.int32, device="cuda"), kind
    want = gg.reference(a, b, first, counts, config.activation, bias)
    if config.load == 1:  # rows of a behind a gap, b transposed
        a = torch.cat([a, a[:, :1]], dim=1)[:, :k]
        b = b.transpose(1, 2).contiguous().transpose(1, 2)
    call = gg.Call(config, a, b, meta, out, launch_kind, alignment, max_m, bias,
                   split_cost=split_cost)
    valid = torch.zeros(rows + 3, dtype=torch.bool, device="cuda")
    worst, previous = 0.0, None
    for _ in range(repeats):
        backing.fill_(float("nan"))
        call()
        torch.cuda.synchronize()
        for expert, expected in want.items():
            begin = first[expert]
            got = out[begin:begin + counts[expert]].float()
            error = ((got - expected).norm() / expected.norm()).item()
            worst = max(worst, error if error == error else float("inf"))
            if kind != "per_row":
                valid[1 + begin:1 + begin + counts[expert]] = True
        clean = True
        if kind != "per_row":
            clean = bool(backing[~valid].isnan().all() and backing[:, features:].isnan().all())
        now = backing[valid][:, :features].clone()
        same = previous is None or torch.equal(now, previous)
        previous = now
        if not clean or not same or worst > 6e-3:
            return False, f"error {worst:.2e} clean {clean} same {same}"
    return True, f"error {worst:.1e}"


def cases():
    rng = random.Random(1)
    base = [dict(kind="psum", counts=[5, 0, 17, 128, 1, 0, 300, 64], n=256, k=256)]
    yield from base
    yield dict(kind="psum", counts=[5, 0, 17, 128, 1, 0, 300, 64], n=256, k=256, alignment=64)
    yield dict(kind="per_row", counts=[5, 0, 17, 128, 1, 0, 300, 64], n=256, k=256, alignment=64)
    yield dict(kind="per_row", counts=[5, 0, 17, 128, 1, 0, 300, 64], n=256, k=256)
    yield dict(kind="masked", counts=[5, 0, 17, 128, 1, 0, 100, 64], n=256, k=256, max_m=128)
    yield dict(kind="psum", counts=[0] * 7, n=128, k=128)
    yield dict(kind="psum", counts=[0] * 40 + [1111] + [0] * 40, n=400, k=200)
    for tiles in range(1, 8):  # tile parity, N and K tails
        counts = [rng.choice([0, 1, 8, 31, 129, 257]) for _ in range(tiles)]
        yield dict(kind="psum", counts=counts, n=128 * tiles - 16 * (tiles % 3), k=64 * tiles + 8)
    yield dict(kind="psum", counts=[3, 9], n=256, k=8192)             # split along K
    yield dict(kind="psum", counts=[3, 200, 9], n=384, k=4096)        # split along K, wide
    yield dict(kind="psum", counts=[16] * 9, n=2048, k=1024, split_cost=0)
    yield dict(kind="psum", counts=[rng.randrange(0, 4) for _ in range(2048)], n=128, k=64)
    yield dict(kind="psum", counts=[rng.randrange(0, 300) for _ in range(64)], n=768, k=320)
    yield dict(kind="psum", counts=[5000, 3, 0, 2049], n=512, k=128)
    for rows in range(1, 300, 23):
        yield dict(kind="psum", counts=[rows], n=136 - 8 * (rows % 2) + 24, k=136)


def variants(quick):
    for tile in TILES:
        yield gg.Config(**tile)
        yield gg.Config(activation="silu_and_mul", **tile)
        if quick:
            continue
        yield gg.Config(activation="swigluoai", bias=True, **tile)
        yield gg.Config(out_type=F32, bias=True, **tile)
        yield gg.Config(in_type=F16, out_type=F16, activation="gelu_and_mul", bias=True, **tile)
        yield gg.Config(activation="gelu_tanh_and_mul", out_type=F32, **tile)
    yield gg.Config(bias=True, **STRIDED)
    yield gg.Config(activation="swigluoai", bias=True, in_type=F16, out_type=F16, **STRIDED)
    if not quick:
        yield gg.Config(activation="silu_and_mul", **STRIDED)
        yield gg.Config(out_type=F32, **STRIDED)


def main():
    quick = "quick" in sys.argv
    torch.backends.cuda.matmul.allow_tf32 = False
    configs = list(variants(quick))
    gg.build(configs)
    print("built", len(configs), flush=True)
    failures = 0
    for config in configs:
        count = 0
        for index, case in enumerate(cases()):
            if config.load == 1:  # odd sizes
                case["n"], case["k"] = case["n"] - 2 * (index % 5), case["k"] - 3 * (index % 3)
                case["n"] -= index % 2 if config.activation == "none" else 0
            elif config.activation != "none":
                case["n"] = case["n"] // 16 * 16
            if "-v" in sys.argv:
                print(config.tile(), config.activation, index, flush=True)
            ok, text = check(config, seed=index, **case)
            count += 1
            if not ok:
                failures += 1
                case["counts"] = str(case["counts"])[:60]
                print("FAILED", config.tile(), config.activation, config.bias, config.out_type,
                      case, text, flush=True)
                if failures > 12:
                    sys.exit(1)
        print("done", config.tile(), config.activation, config.in_type, config.out_type, count,
              text, flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
