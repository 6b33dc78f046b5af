# SPDX-License-Identifier: Apache-2.0
"""TileOPs C++: composite operators for LLM engineers, on Hopper and on CPUs.

    import torch, tileops_cpp as tileops
    op = tileops.moe.FusedMoEFwdOp(top_k=8, renormalize=True)
    y = op(hidden, gating, w_gate_up, w_down)

Ops, their parameters and their docstrings come from the library's spec, a module a family. Importing
needs neither torch nor a GPU.
"""
import sys as _sys

from tileops_cpp import _core, _ops, _sums
from tileops_cpp._core import (
    AmbiguousSelectionError,
    AmbiguousTargetError,
    BackendError,
    BuildError,
    Error,
    OpNotAvailableError,
    SpecError,
)
from tileops_cpp._op import Op
from tileops_cpp._tensors import Tensor

__version__ = "0.1.0"

globals().update(_sums.load())
for _module in _ops.load():
    globals()[_module.__name__.rpartition(".")[2]] = _module
    _sys.modules[_module.__name__] = _module
