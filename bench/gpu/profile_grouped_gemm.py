# SPDX-License-Identifier: Apache-2.0
"""Launches one configuration a few times, for a profiler, or for a second to watch the clocks.

    ncu --clock-control none -k regex:sm90_kernel -c 1 python3 bench/gpu/profile_grouped_gemm.py \\
        EXPERTS N K ACTIVATION TOKENS TOP_K TILE [watch]
"""
import subprocess
import sys
import time

import torch

import bench_grouped_gemm as bench
import grouped_gemm as gg


def main():
    experts, n, k, activation, tokens, top_k, tile = sys.argv[1:8]
    experts, n, k, tokens, top_k = int(experts), int(n), int(k), int(tokens), int(top_k)
    config = gg.Config(activation=activation, **bench.parse_tile(tile))
    gg.build([config])
    b = bench.weights(experts, n, k)
    x = bench.make_inputs(tokens, top_k, False, experts, k)
    features = n if activation == "none" else n // 2
    out = torch.empty(x[0].shape[0], features, dtype=torch.bfloat16, device="cuda")
    call = gg.Call(config, x[0], b, x[1], out, x[2], 1, x[3])
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    if "watch" in sys.argv:
        monitor = subprocess.Popen(
            ["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw.instant,"
             "clocks_event_reasons.active", "--format=csv,noheader", "-lms", "150"],
            stdout=subprocess.PIPE, text=True)
        begin, count = time.time(), 0
        while time.time() - begin < 1.5:
            for _ in range(20):
                call()
            torch.cuda.synchronize()
            count += 20
        seconds = time.time() - begin
        monitor.terminate()
        lines = monitor.stdout.read().splitlines()
        print(sys.argv[1:8], f"{seconds / count * 1e3:.4f} ms a call", lines[-4:])


if __name__ == "__main__":
    main()
