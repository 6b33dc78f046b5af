# SPDX-License-Identifier: Apache-2.0
"""An installed wheel, alone: no torch, no source tree, its own libraries; a layer beside float64."""
import importlib.util
import pathlib

import numpy as np

import tileops_cpp
from tileops_cpp import moe

PACKAGE = pathlib.Path(tileops_cpp.__file__).parent


def layer(hidden, gating, w_gate_up, w_down):
    """The best expert of each token, its weight 1."""
    out = np.zeros(hidden.shape)
    for t, expert in enumerate(gating.argmax(axis=1)):
        gate, up = np.split(w_gate_up[expert].astype(np.float64) @ hidden[t], 2)
        out[t] = w_down[expert].astype(np.float64) @ (gate / (1 + np.exp(-gate)) * up)
    return out


def main():
    assert importlib.util.find_spec("torch") is None, "this environment is to have no torch"
    assert "site-packages" in str(PACKAGE), PACKAGE
    random = np.random.default_rng(1)
    hidden = random.normal(size=(9, 32)).astype(np.float16)
    gating = random.normal(size=(9, 4)).astype(np.float32)
    w_gate_up = (random.normal(size=(4, 32, 32)) * 0.2).astype(np.float16)
    w_down = (random.normal(size=(4, 32, 16)) * 0.2).astype(np.float16)
    y = moe.FusedMoEFwdOp(1, renormalize=True)(hidden, gating, w_gate_up, w_down)
    wanted = layer(hidden, gating, w_gate_up, w_down)
    error = np.linalg.norm(y - wanted) / np.linalg.norm(wanted)
    assert error < 2e-3, error
    maps = pathlib.Path("/proc/self/maps").read_text()
    for name in ("libtileops.so", "libyaml-cpp.so", "libxxhash.so"):
        used = {line.split()[-1] for line in maps.splitlines() if name in line}
        assert used and all(str(PACKAGE) in path for path in used), (name, used)
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "moe.pyi").exists()
    print(f"wheel {tileops_cpp.__version__}: a layer is within {error:.1e} of float64")


main()
