# SPDX-License-Identifier: Apache-2.0
"""Threads on one op, the GIL, fork, references."""
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import definition
import tileops_cpp
from conftest import ExpertInputs
from tileops_cpp import MGroupedLayout, moe
from written_ops import PyQuarterFwdOp, PySmoothFwdOp, PyWindowMeanFwdOp, window_mean


def in_threads(count, work):
    faults = []

    def guarded(index):
        try:
            work(index)
        except BaseException as fault:  # noqa: B902: reported below
            faults.append(fault)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a deadlock"
    if faults:
        raise faults[0]


def test_threads_on_one_cold_op():
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
    wanted = {}

    def work(index):
        for round in range(20):
            inputs = ExpertInputs((1 + index, round % 3), seed=index)
            y = op(*inputs)
            assert definition.error(y, definition.expert_mlp(*inputs)) < 2e-3
            wanted[index] = True

    in_threads(8, work)
    assert len(wanted) == 8


def test_threads_on_one_composite_in_python():
    x = definition.rng(2).normal(size=(4, 32)).astype(np.float32)
    op = PyQuarterFwdOp()

    def work(index):
        for columns in (8, 16, 32, 12):
            part = np.ascontiguousarray(x[:, :columns])
            assert np.array_equal(op(part), window_mean(part, max(1, columns // 4)))

    in_threads(8, work)
    assert sorted(h.identity for h in op.held_delegates()) == [2, 3, 4, 8]
    assert len({h.op.key for h in op.held_delegates()}) == 4


def test_one_sub_op_is_built_for_many_askers():
    op, built, found = PyQuarterFwdOp(), [], []
    start = threading.Barrier(8)

    class Slow(PyWindowMeanFwdOp):
        def __init__(self, window):
            built.append(window)
            time.sleep(0.05)
            super().__init__(window)

    op.delegate_types = {"mean": Slow}

    def work(index):
        start.wait()
        found.append(op.delegate_for("mean", 5, window=5))

    in_threads(8, work)
    assert built == [5] and len({id(each) for each in found}) == 1


def test_a_builder_that_raises_in_one_thread_reaches_all_that_wait():
    op, seen = PyQuarterFwdOp(), []
    start = threading.Barrier(4)

    class Broken(PyWindowMeanFwdOp):
        def __init__(self, window):
            time.sleep(0.05)
            raise LookupError("no such window")

    op.delegate_types = {"mean": Broken}

    def work(index):
        start.wait()
        try:
            op.delegate_for("mean", 5, window=5)
        except LookupError as fault:
            seen.append(str(fault))

    in_threads(4, work)
    assert seen == ["no such window"] * 4


def test_the_gil_is_released_while_the_library_computes():
    inputs = ExpertInputs((64,) * 4, hidden=256, inter=256)
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), implementation="reference")
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    def ticks_inside_a_call():
        begin = time.perf_counter()
        op(*inputs)
        end = time.perf_counter()
        return sum(begin < t < end for t in list(ticks))

    ticker = threading.Thread(target=tick)
    ticker.start()
    # A busy machine may leave the ticker no turn during one call, but not during all.
    most = max(ticks_inside_a_call() for _ in range(10))
    done.set()
    ticker.join()
    assert most >= 5


FORK = """
import os, numpy as np, tileops_cpp
from tileops_cpp import MGroupedLayout, moe
op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
x, w_gate_up = np.ones((64, 256), np.float16), np.full((2, 512, 256), 0.01, np.float16)
arguments = x, w_gate_up, np.full((2, 256, 256), 0.01, np.float16), np.array([32, 64], np.int32)
{before}
child = os.fork()
y = op(*arguments)
assert np.all(y == y[0, 0]) and y[0, 0] > 0
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("both")
"""


@pytest.mark.parametrize("before", ["", "op(*arguments)"], ids=["after_import", "after_a_call"])
def test_fork(before):
    code = FORK.format(before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["both"]), done.stderr


def count_references(objects, call):
    call()
    gc.collect()
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(20):
        call()
    gc.collect()
    return [after - b for after, b in zip([sys.getrefcount(each) for each in objects], before)]


def test_calls_keep_no_reference_but_the_records():
    inputs = ExpertInputs()
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
    out = np.empty_like(inputs.x)
    assert count_references([*inputs, out], lambda: op(*inputs, out=out)) == [0] * 5

    def failing():
        with pytest.raises(ValueError):
            op(inputs.x, inputs.w_gate_up, inputs.w_down[:, :3], inputs.ends)

    assert count_references([*inputs], failing) == [0] * 4
    x = np.ones((4, 16), np.float32)
    written = PySmoothFwdOp(2)
    assert count_references([x, written, written.narrow], lambda: written(x)) == [0] * 3
    written.narrow.forward = lambda x, y=None: 1 / 0

    def raising():
        with pytest.raises(ZeroDivisionError):
            written(x)

    assert count_references([x, written, written.narrow], raising) == [0] * 3


def test_an_input_that_a_record_keeps_goes_with_the_next_call():
    inputs = ExpertInputs()
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())

    class Ends(np.ndarray):
        pass

    ends = inputs.ends.copy().view(Ends)
    gone = weakref.ref(ends)
    op(inputs.x, inputs.w_gate_up, inputs.w_down, ends)
    del ends
    gc.collect()
    kept = gone() is not None
    op(*inputs)
    gc.collect()
    assert gone() is None
    assert kept or np.array_equal(np.asarray(op.last_call().metadata("layout_metadata")), inputs.ends)


def test_results_do_not_pile_up():
    import resource

    inputs = ExpertInputs((256,), hidden=512, inter=8)
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
    for _ in range(50):
        op(*inputs)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(400):
        op(*inputs)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"{grown} KiB after 400 results of 256 KiB"
