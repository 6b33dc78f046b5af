# SPDX-License-Identifier: Apache-2.0
"""Importing: without torch, without CUDA, and nothing else of size."""
import os
import subprocess
import sys

import numpy as np

BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_brings_in_the_standard_library_alone():
    code = """
import sys; before = set(sys.modules); import tileops_cpp
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""
    assert run(code).split() == ["tileops_cpp"]


def test_an_op_computes_where_there_is_no_torch():
    code = BLOCKER.replace("BLOCKED", "('torch',)") + """
import numpy as np, tileops_cpp
from tileops_cpp import moe, MGroupedLayout
op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous())
x = np.ones((3, 8), np.float16)
y = op(x, np.ones((1, 12, 8), np.float16), np.ones((1, 8, 6), np.float16), np.array([3], np.int32))
silu = 8 / (1 + np.exp(-8.0))
print(np.abs(y - 6 * 8 * silu).max() < 1)
"""
    assert run(code).strip() == "True"


def test_no_gpu_library_is_loaded():
    code = """
import tileops_cpp, numpy as np
tileops_cpp.moe.FusedTopKFwdOp(1)(np.ones((2, 4), np.float32))
print([line.split()[-1] for line in open('/proc/self/maps') if 'libcuda' in line or 'nvrtc' in line])
"""
    assert run(code).strip() == "[]"


def test_modules_of_families_import_by_name():
    code = "from tileops_cpp.moe import FusedMoEFwdOp; import tileops_cpp.moe as m; print(m.FusedMoEFwdOp is FusedMoEFwdOp)"
    assert run(code).strip() == "True"
