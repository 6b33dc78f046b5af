# SPDX-License-Identifier: Apache-2.0
"""Tiny models in vLLM on the CPU: this library's experts beside vLLM's own, both against
transformers in float32. Each of the two serves in two processes of its own, this library's second,
on the same cache of compiled models."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

import pytest
import tiny_models
import torch

_HERE = pathlib.Path(__file__).parent
_CASES = [(name, mode) for name in tiny_models.CONFIGS for mode in ("eager", "compiled")]


def _python(script, *arguments, cache, **variables):
    """Runs a script of this folder; its output where it fails."""
    environment = {**os.environ, "VLLM_CACHE_ROOT": str(cache), **variables}
    ended = subprocess.run(
        [sys.executable, _HERE / script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    return ended.stdout


class Served:
    """One run's tokens and logits beside the float32 logits of the same sequences."""

    def __init__(self, run, folder):
        self.experts, self.mode = run["experts"], run["mode"]
        self.sequences = run["sequences"]
        wanted = tiny_models.float32_logits(folder, self.sequences)
        self.wanted = torch.cat([rows[:-1] for rows in wanted])
        self.logits = torch.cat(run["logits"])
        error = self.logits - self.wanted
        self.rms = error.square().mean(dim=1).sqrt()  # of each position
        self.max = error.abs().max(dim=1).values


@pytest.fixture(scope="module")
def served(folders, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    runs = {}
    halves = [list(folders.values())[half::2] for half in (0, 1)]  # most is one thread's work
    for who, switch in (("vllm", "0"), ("tileops", "1")):

        def serve(out, half, switch=switch):
            _python("serve.py", out, *half, cache=root / "cache", TILEOPS_VLLM=switch)

        outs = [root / f"{who}_{half}.pt" for half in (0, 1)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(serve, outs, halves))
        runs[who] = torch.load(outs[0]) | torch.load(outs[1])
    return {
        (who, *case): Served(runs[who][case], folders[case[0]]) for who in runs for case in _CASES
    }


@pytest.mark.parametrize("case", _CASES, ids="-".join)
def test_each_is_served_by_whom_it_should(served, case):
    mode = {"eager": "NONE", "compiled": "DYNAMO_TRACE_ONCE"}[case[1]]
    own, ours = served["vllm", *case], served["tileops", *case]
    assert own.mode == ours.mode == mode
    assert own.experts == ["CPUUnquantizedExperts"] * 2
    assert ours.experts == ["TileOpsExperts"] * 2


@pytest.mark.parametrize("case", _CASES, ids="-".join)
def test_logits_are_as_close_to_float32_as_those_of_vllm(served, case):
    own, ours = served["vllm", *case], served["tileops", *case]
    scale = ours.wanted.square().mean().sqrt()
    assert ours.rms.median() < 2e-2 * scale
    for quantile, margin in ((0.5, 1.15), (0.9, 1.3)):  # of 240 positions: they scatter
        assert ours.rms.quantile(quantile) <= margin * own.rms.quantile(quantile)


def test_all_logits_together_are_as_close(served):
    ours, own = (
        torch.cat([served[who, *case].rms for case in _CASES]).mean() for who in ("tileops", "vllm")
    )
    assert ours <= 1.1 * own


@pytest.mark.parametrize("case", _CASES, ids="-".join)
def test_greedy_tokens_are_those_of_float32_where_it_decides(served, case):
    ours = served["tileops", *case]
    best = ours.wanted.topk(2, dim=1)
    decides = best.values[:, 0] - best.values[:, 1] > 2 * ours.max  # each of the two may be off by it
    assert decides.float().mean() > 0.4
    num_new = tiny_models.NUM_NEW_TOKENS
    new = torch.cat(  # positions whose next token vLLM has chosen
        [torch.arange(1, len(ids)) >= len(ids) - num_new for ids in ours.sequences]
    )
    chosen = torch.cat([torch.tensor(ids[1:]) for ids in ours.sequences])
    assert new.sum() == num_new * len(ours.sequences)
    assert torch.equal(ours.logits.argmax(dim=1)[new], chosen[new])
    assert torch.equal(chosen[new & decides], best.indices[:, 0][new & decides])
