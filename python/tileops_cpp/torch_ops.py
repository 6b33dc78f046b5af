# SPDX-License-Identifier: Apache-2.0
"""torch.ops.tileops_cpp: every leaf op class as operators of PyTorch, one for each effect branch.

    torch.ops.tileops_cpp.moe_grouped_gemm_fwd(op.key, a, b, layout_metadata)

An operator takes the key of an instance, then the tensors as the op's spec orders them; it is
functional, or writes what its name says (``…_out``). Importing this module registers them.
"""
import ctypes
import os
import threading
import typing

import torch

from tileops_cpp import _core, fakes


class Branch(typing.NamedTuple):
    """One operator."""

    op_class: str
    operator: str  # "tileops_cpp::moe_grouped_gemm_fwd_out"
    inputs: tuple  # names
    outs: tuple  # outputs whose buffers it takes by name
    fresh: tuple  # outputs that it returns


# Operator -> its branch, and what calls it.
branches = {}
overloads = {}
_classes = set()
_lock = threading.Lock()


def _load():
    path = os.path.join(os.path.dirname(__file__), "_torch_adapter.so")
    if not os.path.exists(path):
        raise ImportError(
            "tileops_cpp was built without torch's headers, so it has no torch operators; reinstall it "
            "where torch >= 2.11 is installed: pip install --no-cache-dir --force-reinstall tileops-cpp"
        )
    register = ctypes.CDLL(path).tileops_torch_register
    register.restype = ctypes.c_char_p
    return register


_register_kernels = _load()
_core.set_node_framework(torch.Tensor)  # what Python's code in a node computes with


def _operator_name(node_name):
    """The namespace tileops is the Python TileOPs' in PyTorch."""
    namespace, name = node_name.split("::")
    return f"{'tileops_cpp' if namespace == 'tileops' else namespace}::{name}"


def _register_fake(branch):
    def fake(key, *inputs, **named):
        inputs = [*inputs, *(named.get(name) for name in branch.inputs[len(inputs) :])]
        made = fakes.fake(key, inputs, branch.fresh)
        if not made:
            return None
        return made[0] if len(made) == 1 else tuple(made)

    torch.library.register_fake(branch.operator, fake)


def register():
    """Registers the leaf classes that were declared since. Idempotent; any thread."""
    with _lock:
        fault = _register_kernels()
        if fault is not None:
            raise RuntimeError(fault.decode())
        for op_class in _core.op_class_names():
            if op_class in _classes:
                continue
            _classes.add(op_class)
            for each in _core.effect_branches(op_class):
                branch = Branch(
                    op_class,
                    _operator_name(each["operator"]),
                    tuple(each["inputs"]),
                    tuple(each["outs"]),
                    tuple(each["fresh"]),
                )
                branches[branch.operator] = branch
                _register_fake(branch)
                namespace, name = branch.operator.split("::")
                overloads[branch.operator] = getattr(getattr(torch.ops, namespace), name).default


def branch_of(node_name):
    """The operator of a traced node."""
    name = _operator_name(node_name)
    if name not in branches:
        register()
    return branches[name]


register()
