# SPDX-License-Identifier: Apache-2.0
"""The spec's small workloads as torch tensors, for tests of operators and of compilation."""
import json

import torch

import tileops_cpp
from tileops_cpp import _core, _op, fakes

LIBRARY = ("moe",)  # modules whose ops the library itself brings


def op_classes(leaves=True, composites=False):
    """Op classes of the library, sorted by name."""
    found = []
    for module in LIBRARY:
        for cls in vars(getattr(tileops_cpp, module)).values():
            if isinstance(cls, type) and issubclass(cls, _op.Op) and cls is not _op.Op:
                if composites if cls.spec["stages"] else leaves:
                    found.append(cls)
    return sorted(found, key=lambda cls: cls.__name__)


class Case:
    """A workload of an op: the op, and its inputs as torch tensors."""

    def __init__(self, cls, workload_id, seed=0):
        params, inputs = _core.workload(cls.spec_name, workload_id, seed)
        for declared in cls.spec["params"]:
            if declared["type"]["kind"] == "dtype" and params.get(declared["name"]) is not None:
                params[declared["name"]] = fakes.DTYPES[params[declared["name"]]]
        self.op = cls(**params)
        self.inputs = [None if each is None else torch.from_dlpack(each) for each in inputs]
        self.names = [each["name"] for each in cls.spec["inputs"]]
        self.keyword_only = [each["keyword_only"] for each in cls.spec["inputs"]]

    def call(self, op=None, inputs=None, **named):
        """The op's call, as users write it."""
        inputs = self.inputs if inputs is None else inputs
        positional = [x for x, by_name in zip(inputs, self.keyword_only) if not by_name]
        while positional and positional[-1] is None:
            positional.pop()
        for name, tensor, by_name in zip(self.names, inputs, self.keyword_only):
            if by_name and tensor is not None:
                named[name] = tensor
        return (op or self.op)(*positional, **named)

    def graph(self):
        """The C++ trace of the call, parsed."""
        return json.loads(self.call(self.op.trace).json())


def small_ids(cls):
    return _core.workload_ids(cls.spec_name, "small")


def strided(tensor):
    """The same elements with strides that are not contiguous, where it has several."""
    if tensor is None or tensor.numel() < 2:
        return tensor
    if tensor.dim() >= 2:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    return torch.stack([tensor, tensor], dim=-1)[:, 0]


def fills_every_row(cls, workload_id):
    """Whether all of the outputs' elements are specified: a tight layout, no dropped routes."""
    layout = _core.workload(cls.spec_name, workload_id, 0)[0].get("layout")
    is_tight = layout is None or getattr(layout, "alignment", None) == 1
    return is_tight and "ep-local" not in workload_id


def whole_ids(cls):
    """The small workloads that fill every row."""
    return [workload_id for workload_id in small_ids(cls) if fills_every_row(cls, workload_id)]


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def same_bits(a, b):
    """Whether two results are equal bit for bit."""
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else tensor.reshape(-1)
