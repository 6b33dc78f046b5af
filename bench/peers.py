#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows of the performance table, ours beside what a PyTorch installation offers (Python TileOPs
among it, where it is installed), in one run.

    python3 bench/peers.py --device cuda --json peers.json --html peers.html
    python3 bench/peers.py --device cpu  --json peers.json --html peers.html

Ours is timed by `tileops bench`, which checks it first and writes down the routing of its inputs; the peers
get the same routing and sizes, are compared with float32 arithmetic on some of the rows, and are timed the same way: single
calls with a cold second-level cache, and calls back to back on different inputs (on a GPU in one CUDA graph, where
the peer can be captured). Rows run one after the other, ours and its peers within a minute of each other; with --in-turn
a few peers and ours once more, through Python, by samples in turn: a GPU at its power limit drifts by more than they differ.
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch

from peer_calls import (
    CPU_EXPERTS, CUDA_EXPERTS, EXPERTS, GEMMS, IN_TURN, MASKED_GEMMS, SHARED_EXPERTS, silu_and_mul,
)
from peer_timer import Timer

BENCH = pathlib.Path(__file__).resolve().parent
DTYPE = torch.bfloat16
TOLERANCE = 2e-2


def read_int32(path):
    """The int32 tensors of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, facts in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in facts["data_offsets"])
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.int32)
        tensors[name] = flat.reshape(facts["shape"])
    return tensors


def random(shape, scale, device):
    tensor = torch.empty(shape, dtype=DTYPE, device=device)
    for part in tensor.split(max(1, (1 << 26) // max(1, tensor[0].numel()))):
        part.normal_(std=scale)
    return tensor


class Weights:
    """Weights of one shape at a time: they are most of the memory."""

    def __init__(self, device):
        self.device, self.key, self.tensors = device, None, None

    def drop(self):
        self.key, self.tensors = None, None
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def get(self, *shapes):
        if shapes != self.key:
            self.drop()
            self.tensors = [random(shape, shape[-1] ** -0.5, self.device) for shape in shapes]
            self.key = shapes
        return self.tensors


def wanted_experts(w_gate_up, w_down, hidden, ids, weights, tokens):
    """float32, of some tokens."""
    rows = []
    for token in tokens:
        sums = torch.zeros(hidden.shape[1], device=hidden.device)
        for expert, weight in zip(ids[token].tolist(), weights[token].tolist()):
            x = silu_and_mul(w_gate_up[expert].float() @ hidden[token].float())
            sums += weight * (w_down[expert].float() @ x)
        rows.append(sums)
    return torch.stack(rows)


def relative_error(got, want):
    return ((got.float() - want).norm() / want.norm()).item()


def experts_peers(row, routings, weights_of, timer, device):
    shapes = row["shapes"]
    w_gate_up, w_down = weights_of.get(shapes["w_gate_up"], shapes["w_down"])
    inputs = []
    for ids in routings:
        hidden = random(shapes["hidden_states"], 1.0, device)
        weights = torch.rand(ids.shape, device=device) + 0.05
        inputs.append((hidden, ids.to(device), weights / weights.sum(1, keepdim=True)))
    num_tokens = inputs[0][0].shape[0]
    tokens = sorted({0, num_tokens // 2, num_tokens - 1})
    want = wanted_experts(w_gate_up, w_down, *inputs[0], tokens)

    def prepare(make):
        peer = make(w_gate_up, w_down)
        check(relative_error(peer(*inputs[0])[tokens], want))
        return [lambda each=each: peer(*each) for each in inputs]

    peers = EXPERTS | (CUDA_EXPERTS if device == "cuda" else CPU_EXPERTS)
    return time_peers(prepare, peers, IN_TURN["experts"], timer)


def gemm_peers(row, metadata, weights_of, timer, device):
    shapes = row["shapes"]
    (b,) = weights_of.get(shapes["b"])
    inputs = [(random(shapes["a"], 1.0, device), each.to(device)) for each in metadata]
    masked = len(shapes["a"]) == 3
    a, ends = inputs[0]
    if masked:
        expert = a.shape[0] // 2
        at, row_of_a = (expert, 0), a[expert, 0]
    else:
        at = a.shape[0] // 2
        expert, row_of_a = int((ends <= at).sum()), a[at]
    want = row_of_a.float() @ b[expert].float().T

    def prepare(make):
        peer = make(b)
        got = peer(*inputs[0])
        if make is not GEMMS["dense (ceiling)"]:
            check(relative_error(got[at], want))
        return [lambda each=each: peer(*each) for each in inputs]

    return time_peers(prepare, MASKED_GEMMS if masked else GEMMS, IN_TURN["masked" if masked else "gemm"], timer)


def shared_expert_peers(row, metadata, weights_of, timer, device):
    shapes = row["shapes"]
    w_gate_up, w_down = weights_of.get(shapes["w_gate_up"], shapes["w_down"])
    inputs = [random(shapes["hidden_states"], 1.0, device) for _ in range(row["input_sets"])]
    want = silu_and_mul(w_gate_up.float() @ inputs[0][0].float()) @ w_down.float().T

    def prepare(make):
        peer = make(w_gate_up, w_down)
        check(relative_error(peer(inputs[0])[0], want))
        return [lambda each=each: peer(each) for each in inputs]

    return time_peers(prepare, SHARED_EXPERTS, IN_TURN["shared"], timer)


PEERS = {
    "FusedMoEExpertsFwdOp": experts_peers,
    "MoEGroupedGemmFwdOp": gemm_peers,
    "SharedExpertMLPFwdOp": shared_expert_peers,
}


def check(error):
    if not error < TOLERANCE:
        raise ValueError(f"wrong: relative error {error:.1e}")


def attempt(measure, *what):
    """A peer that this installation lacks or that fails is a row that says so."""
    try:
        return measure(*what)
    except Exception as error:  # pylint: disable=broad-except
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def time_peers(prepare, one_by_one, in_turn, timer):
    """`prepare` makes a peer's calls and checks them."""
    if not timer.in_turn:
        return {name: attempt(lambda make: timer.measure(prepare(make)), make) for name, make in one_by_one.items()}
    prepared = {name: attempt(prepare, make) for name, make in in_turn.items()}
    failed = {name: calls for name, calls in prepared.items() if isinstance(calls, dict)}
    return failed | timer.measure_in_turn({name: calls for name, calls in prepared.items() if name not in failed})


def add_peers(row, weights_of, timer, device):
    if "error" in row or row["op"] not in PEERS:
        return
    metadata = read_int32(row["metadata_file"]) if "metadata_file" in row else {}
    sets = [metadata[name] for name in sorted(metadata, key=lambda name: int(name.split(".")[0]))]
    row["peers"] = PEERS[row["op"]](row, sets, weights_of, timer, device)


def run_ours(arguments, folder, *options):
    json_path = folder / "ours.json"
    json_path.unlink(missing_ok=True)
    command = [arguments.tileops, "bench", "--rows", folder / "rows.json", "--device", arguments.device, "--json",
               json_path, "--metadata", folder, "--seconds", str(arguments.seconds), "--rest", str(arguments.rest),
               *options]
    command += ["--tune"] if arguments.tune else []
    done = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, check=False)
    if not json_path.exists():
        sys.exit(f"peers.py: tileops bench failed with exit code {done.returncode}")
    return json.loads(json_path.read_text())


def measure_row(row, arguments, timer, weights_of):
    """Ours in a process of its own, then the peers."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "rows.json").write_text(json.dumps({"rows": [row]}))
        weights_of.drop()  # ours needs the memory
        ours = run_ours(arguments, folder)
        if arguments.device == "cpu":
            packed = run_ours(arguments, folder, "--pack")["rows"][0]
        add_peers(ours["rows"][0], weights_of, timer, arguments.device)
        if arguments.device == "cpu":
            ours["rows"][0].setdefault("peers", {})["ours, packed"] = packed
        ours["rows"][0].pop("metadata_file", None)
        return ours


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--rows", type=pathlib.Path, help="default: bench/rows/h200.json or cpu.json")
    parser.add_argument("--only", default="", help="rows whose name holds one of these texts, with commas between")
    parser.add_argument("--tileops", default=BENCH.parent / "build/release/bin/tileops")
    parser.add_argument("--tune", action="store_true", help="tune ours first")
    parser.add_argument("--seconds", type=float, default=0.2, help="of timed calls a row and peer, about")
    parser.add_argument("--rest", type=float, default=0, metavar="MS",
                        help="time bursts: a rest before each sample (default: the GPU's clock settles first)")
    parser.add_argument("--in-turn", action="store_true", help="the best peers and ours (the Python package), on a GPU, on the "
                        "same tensors, a sample of each in turn")
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--html", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("peers.py: PyTorch sees no GPU; --device cpu runs the CPU's rows")
    if arguments.in_turn and arguments.device != "cuda":
        sys.exit("peers.py: --in-turn is for --device cuda; on a CPU rows are timed one after the other")
    arguments.rows = arguments.rows or BENCH / f"rows/{'h200' if arguments.device == 'cuda' else 'cpu'}.json"
    return arguments


def main():
    arguments = parse()
    torch.manual_seed(1)
    wanted = [text for text in arguments.only.split(",") if text]
    rows = [row for row in json.loads(arguments.rows.read_text())["rows"]
            if not wanted or any(text in row["name"] for text in wanted)]
    timer, weights_of, benchmark = Timer(arguments.device, arguments.seconds, arguments.rest, arguments.in_turn), Weights(arguments.device), None
    with torch.inference_mode():
        for row in rows:
            ours = measure_row(row, arguments, timer, weights_of)
            if benchmark is None:
                benchmark = ours | {"torch": torch.__version__, "rows": []}
            benchmark["rows"] += ours["rows"]
            print(row["name"], json.dumps(ours["rows"][0].get("peers", {})), file=sys.stderr, flush=True)
            arguments.json.write_text(json.dumps(benchmark, indent=2) + "\n")
    report = [str(arguments.tileops), "report", str(arguments.json)]
    code = subprocess.run(report, env=os.environ, check=False).returncode
    if arguments.html:
        subprocess.run(report + ["--html", str(arguments.html)], check=False)
    return code


if __name__ == "__main__":
    sys.exit(main())
