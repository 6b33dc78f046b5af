# SPDX-License-Identifier: Apache-2.0
import gc
import pathlib

import numpy as np
import pytest

import tileops_cpp
from definition import rng

SPEC_FILE = pathlib.Path(__file__).with_name("ops.yaml")
tileops_cpp.load_spec(SPEC_FILE)


def pytest_collection_finish():
    """What was imported is never garbage: collections after each test need not look at it."""
    gc.collect()
    gc.freeze()


class ExpertInputs:
    """Random inputs of MoEExpertMLPFwdOp, rows tight by expert, as NumPy arrays."""

    def __init__(self, rows=(3, 0, 4), hidden=12, inter=7, dtype=np.float16, seed=1):
        random = rng(seed)
        experts, total = len(rows), sum(rows)
        self.x = random.normal(size=(total, hidden)).astype(dtype)
        self.w_gate_up = (random.normal(size=(experts, 2 * inter, hidden)) * 0.3).astype(dtype)
        self.w_down = (random.normal(size=(experts, hidden, inter)) * 0.3).astype(dtype)
        self.ends = np.cumsum(rows).astype(np.int32)

    def __iter__(self):
        return iter((self.x, self.w_gate_up, self.w_down, self.ends))


@pytest.fixture
def expert_inputs():
    return ExpertInputs()


@pytest.fixture
def expert_mlp():
    return tileops_cpp.moe.MoEExpertMLPFwdOp(tileops_cpp.MGroupedLayout.contiguous())


@pytest.fixture(autouse=True)
def no_target_left():
    yield
    tileops_cpp.set_default_target(None)
    for target in tileops_cpp.target_names():
        tileops_cpp.unregister_target(target)
    gc.collect()
