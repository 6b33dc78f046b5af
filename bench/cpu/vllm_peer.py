# SPDX-License-Identifier: Apache-2.0
"""vLLM's fused MoE operator of the CPU beside FusedMoEExpertsFwdOp: bf16, silu, weights packed
ahead by each, in turn on the same tokens: ours and vLLM's of two routings, crosswise (A1 B2 B1 A2),
so that experts come from memory. Medians in ms, in brackets the least; then the median over the
routings of ours / vLLM. In the environment of cmake/test_vllm.sh:

    python bench/cpu/vllm_peer.py [--models qwen3-30b,mixtral] [--tokens 1,4,16,128] [--seconds 4]

One OpenMP runtime serves both: torch's, preloaded, as vLLM does for its workers.
"""
import argparse
import glob
import os
import statistics
import sys
import time

import torch

_MODELS = {  # experts, hidden, inter, top_k
    "qwen3-30b": (128, 2048, 768, 8),
    "mixtral": (8, 4096, 14336, 2),
}


def preload_openmp():
    """Starts this program again with torch's OpenMP runtime ahead of all others."""
    folder = os.path.dirname(torch.__file__)
    found = glob.glob(f"{folder}/lib/libgomp*") + glob.glob(f"{folder}/../torch.libs/libgomp*")
    if found and "libgomp" not in os.environ.get("LD_PRELOAD", ""):
        os.environ["LD_PRELOAD"] = found[0]
        os.execv(sys.executable, [sys.executable, *sys.argv])


def weights_of(num_experts, rows, columns):
    one = torch.randn(rows, columns).mul_(columns**-0.5).bfloat16()
    return torch.stack([one.roll(e, dims=0) for e in range(num_experts)])


def make_ours(w_gate_up, w_down):
    from tileops_cpp.moe import FusedMoEExpertsFwdOp, PackedExperts

    op = FusedMoEExpertsFwdOp()
    packed = PackedExperts(w_gate_up, w_down)
    stand_ins = packed.release_weights()

    def run(out, x, weights, ids):
        op(x, weights, ids, *stand_ins, output=out)

    run.packed = packed  # lives as long as run
    return run


def make_vllm(w_gate_up, w_down):
    from vllm import _custom_ops
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    isa = "amx" if torch.cpu._is_amx_tile_supported() else "vec"
    packed = [_custom_ops.cpu_prepack_moe_weight(w, isa) for w in (w_gate_up, w_down)]

    def run(out, x, weights, ids):
        _custom_ops.cpu_fused_moe(out, x, *packed, None, None, weights, ids, "silu", isa)

    return run


class Calls:
    """Inputs of one call after the other; a single token walks through all experts."""

    def __init__(self, model, num_tokens):
        self.num_experts, hidden, _, self.top_k = _MODELS[model]
        self.x = torch.randn(num_tokens, hidden).bfloat16()
        self.weights = torch.rand(num_tokens, self.top_k)
        self.order = torch.randperm(self.num_experts)
        self.turn = 0

    def next(self):
        tokens = self.x.shape[0]
        if tokens == 1:
            self.order = self.order.roll(-self.top_k)
            ids = self.order[: self.top_k].view(1, -1)
        else:
            ids = torch.rand(tokens, self.num_experts).argsort(dim=1)[:, : self.top_k]
        return self.x, self.weights, ids.int().contiguous()


def check(runs, calls):
    arguments = calls.next()
    ours, theirs = (torch.empty_like(arguments[0]) for _ in runs)
    runs["ours"](ours, *arguments)
    runs["vllm"](theirs, *arguments)
    error = (ours.float() - theirs.float()).norm() / theirs.float().norm()
    assert error < 2e-2, f"the two differ by {error:.2e}"


def measure(runs, calls, seconds):
    """Times of each, by routing."""
    times = {name: [] for name in runs}
    out = torch.empty_like(calls.x)

    def timed(name, arguments):
        begin = time.perf_counter()
        runs[name](out, *arguments)
        return 1e3 * (time.perf_counter() - begin)

    started = time.perf_counter()
    while time.perf_counter() - started < seconds or len(times["ours"]) < 8:
        first, second = calls.next(), calls.next()
        ours_first, vllm_second = timed("ours", first), timed("vllm", second)
        vllm_first, ours_second = timed("vllm", first), timed("ours", second)
        times["ours"] += [ours_first, ours_second]
        times["vllm"] += [vllm_first, vllm_second]
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(_MODELS))
    parser.add_argument("--tokens", default="1,4,16,128")
    parser.add_argument("--seconds", type=float, default=4, help="of each row")
    given = parser.parse_args()
    preload_openmp()
    torch.manual_seed(1)
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    for model in given.models.split(","):
        num_experts, hidden, inter, _ = _MODELS[model]
        w_gate_up = weights_of(num_experts, 2 * inter, hidden)
        w_down = weights_of(num_experts, hidden, inter)
        runs = {"ours": make_ours(w_gate_up, w_down), "vllm": make_vllm(w_gate_up, w_down)}
        del w_gate_up, w_down
        for num_tokens in map(int, given.tokens.split(",")):
            calls = Calls(model, num_tokens)
            check(runs, calls)
            times = measure(runs, calls, given.seconds)
            row = [
                f"{name} {statistics.median(each):.2f} ({min(each):.2f})"
                for name, each in times.items()
            ]
            ratio = statistics.median(a / b for a, b in zip(times["ours"], times["vllm"]))
            print(f"{model} T={num_tokens}: {', '.join(row)}, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
