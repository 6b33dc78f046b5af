# SPDX-License-Identifier: Apache-2.0
"""TileOPs C++: composite operators for LLM engineers, on Hopper and on CPUs.

    import torch, tileops_cpp as tileops
    op = tileops.moe.FusedMoEFwdOp(top_k=8, renormalize=True)
    y = op(hidden, gating, w_gate_up, w_down)

Ops, their parameters and their docstrings come from the library's spec, a module a family. Importing
needs neither torch nor a GPU.
"""
import sys as _sys

from tileops_cpp import _core, _moe, _op, _ops, _sums
from tileops_cpp._core import (
    AmbiguousSelectionError,
    AmbiguousTargetError,
    BackendError,
    BuildError,
    CallRecord,
    Error,
    Explanation,
    Graph,
    OpNotAvailableError,
    SpecError,
    TensorFacts,
    __version__,
    set_call_timing,
)
from tileops_cpp._kernel_types import register_kernel_type, unregister_kernel_type
from tileops_cpp._op import Cost, HeldDelegate, Op
from tileops_cpp._specs import Diagnostic, load_spec, load_spec_text, validate_spec
from tileops_cpp._targets import (
    BuildRequest,
    LoadFailure,
    default_target,
    load_backend,
    load_backends,
    load_failures,
    loaded_backends,
    register_target_builder,
    register_target_detector,
    set_default_target,
    target_names,
    unregister_target,
    unregister_target_builder,
    unregister_target_detector,
)
from tileops_cpp._tensors import Tensor

globals().update(_sums.load())
for _family, _module in _ops.load().items():
    globals()[_family] = _sys.modules[_module.__name__] = _module
_moe.extend(globals()["moe"])
_op._watch_torch()
