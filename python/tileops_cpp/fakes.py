# SPDX-License-Identifier: Apache-2.0
"""Outputs of ops on tensors without contents: shapes and dtypes as the spec's expressions give them,
over sizes that may be symbols. The expressions come from the library as trees (docs/compile.md)."""
import functools
import json
import math
import typing

import torch

from tileops_cpp import _core

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Facts(typing.NamedTuple):
    """What inference needs of a tensor."""

    shape: tuple
    dtype: torch.dtype


def facts_of(tensor):
    """The facts of a tensor; None of an absent one."""
    return None if tensor is None else Facts(tuple(tensor.shape), tensor.dtype)


def _numel(tensor):
    return 0 if tensor is None else math.prod(tensor.shape)


def _ceil_div(a, b):
    return (a + b - 1) // b


_FUNCTIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "neg": lambda a: -a,
    "not": lambda a: not a,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "in": lambda a, b: any(a == each for each in b),
    "not in": lambda a, b: all(a != each for each in b),
    "at": lambda a, i: a[i],
    "list": lambda *items: items,
    "text": lambda text: text,
    "dtype": lambda name: DTYPES[name],
    "present": lambda a: a is not None,
    "abs": abs,
    "min": lambda *items: functools.reduce(torch.sym_min, items),
    "max": lambda *items: functools.reduce(torch.sym_max, items),
    "sqrt": torch.sym_sqrt,
    "is_finite": math.isfinite,
    "ceil_div": _ceil_div,
    "align_up": lambda a, unit: _ceil_div(a, unit) * unit,
    "len": len,
    "prod": math.prod,
    "itemsize": lambda dtype: dtype.itemsize,
    "rank": lambda a: 0 if a is None else len(a.shape),
    "numel": _numel,
    "size": lambda a, i: a.shape[i],
    "bytes": lambda a: 0 if a is None else _numel(a) * a.dtype.itemsize,
}
_FOLDS = {
    "all of": all,
    "any of": any,
    "sum of": sum,
    "max of": lambda items: functools.reduce(torch.sym_max, items),
    "min of": lambda items: functools.reduce(torch.sym_min, items),
}


class Env:
    """What a tree is evaluated over: the call's inputs, and the indices that they solve."""

    def __init__(self, inputs, known):
        self.inputs = inputs
        self.indices = dict(known)
        self.loops = {}

    def evaluate(self, tree):
        """The value of a tree. Errors: KeyError for an index that an absent tensor would tell."""
        if not isinstance(tree, list):
            return tree
        op, *operands = tree
        if op == "index":
            return self.indices[operands[0]]
        if op == "tensor":
            return self.inputs[operands[0]]
        if op == "loop":
            return self.loops[operands[0]]
        if op == "if":
            return self.evaluate(operands[0 if self.evaluate(operands[1]) else 2])
        if op == "and":
            return self.evaluate(operands[0]) and self.evaluate(operands[1])
        if op == "or":
            return self.evaluate(operands[0]) or self.evaluate(operands[1])
        if op in _FOLDS:
            return _FOLDS[op](self._bodies(operands[0], operands[1:]))
        return _FUNCTIONS[op](*map(self.evaluate, operands))

    def _bodies(self, body, loops):
        if not loops:
            yield self.evaluate(body)
            return
        variable, start, stop = loops[0]
        for self.loops[variable] in range(self.evaluate(start), self.evaluate(stop)):
            yield from self._bodies(body, loops[1:])


class Inference:
    """The inference of one instance's outputs. Immutable."""

    def __init__(self, text):
        spec = json.loads(text)
        self.op = spec["op"]
        self.inputs = spec["inputs"]
        self._known = {
            int(index): tuple(value) if isinstance(value, list) else value
            for index, value in spec["known"].items()
        }
        self._deciding = spec["deciding"]
        self._cases = spec["cases"]

    def _case(self, inputs):
        return self._cases[sum((inputs[i] is not None) << b for b, i in enumerate(self._deciding))]

    def env(self, inputs):
        """The inputs (Facts or None) with the indices that they solve. Nothing is checked but what
        solving needs: the node checks when it runs. Errors: ValueError (a tensor of another rank)."""
        case = self._case(inputs)
        for decl, tensor, rank in zip(self.inputs, inputs, case["ranks"]):
            self._check_rank(decl["name"], tensor, rank)
        env = Env(inputs, self._known)
        for kind, *step in case["steps"]:
            _STEPS[kind](env, *step)
        return env

    def _check_rank(self, name, tensor, wanted):
        if tensor is None or wanted is None:
            return
        text, rank, or_more = wanted
        if len(tensor.shape) == rank or (or_more and len(tensor.shape) > rank):
            return
        shape = list(tensor.shape)
        raise ValueError(f"{self.op}: {name} has shape {shape}; the spec says {text}")

    def outputs(self, inputs):
        """Facts of every output; None of those that the call leaves out."""
        env = self.env(inputs)
        return [_output(env, output) for output in self._case(inputs)["outputs"]]

    def device(self, slot, tensors):
        """Where an output of a call on these tensors lies."""
        known = [t.device for t, decl in zip(tensors, self.inputs) if t is not None and not decl["cpu"]]
        if not known or (known[0].type == "cuda" and self._cases[0]["outputs"][slot]["cpu"]):
            return torch.device("cpu")
        return known[0]


def _output(env, output):
    if not env.evaluate(output["when"]):
        return None
    shape = []
    for term in output["shape"]:
        if isinstance(term, list) and term[0] == "*" and len(term) == 2:
            shape.extend(env.evaluate(term[1]))
        else:
            shape.append(env.evaluate(term))
    return Facts(tuple(shape), env.evaluate(output["dtype"]))


def _solve_dim(env, i, dim, index):
    if env.inputs[i] is not None:
        env.indices.setdefault(index, env.inputs[i].shape[dim])


def _solve_dtype(env, i, _, index):
    if env.inputs[i] is not None:
        env.indices.setdefault(index, env.inputs[i].dtype)


def _solve_affine(env, i, dim, index, scale, offset):
    if env.inputs[i] is not None and index not in env.indices:
        env.indices[index] = (env.inputs[i].shape[dim] - offset) // scale


def _solve_affine_at(env, i, dim, index, tree):
    if env.inputs[i] is None or index in env.indices:
        return
    at = []
    for value in (0, 1):
        env.indices[index] = value
        at.append(env.evaluate(tree))
    del env.indices[index]
    _solve_affine(env, i, dim, index, at[1] - at[0], at[0])


def _solve_segment(env, i, dim, index, rank):
    if env.inputs[i] is not None:
        shape = env.inputs[i].shape
        env.indices.setdefault(index, shape[dim : dim + len(shape) - rank])


def _solve_let(env, index, tree):
    try:
        env.indices[index] = env.evaluate(tree)
    except KeyError:
        pass  # it reads what an absent tensor would tell


_STEPS = {
    "dim": _solve_dim,
    "dtype": _solve_dtype,
    "affine": _solve_affine,
    "affine_at": _solve_affine_at,
    "segment": _solve_segment,
    "let": _solve_let,
}

_parsed = functools.lru_cache(maxsize=1024)(Inference)


def inference(key):
    """The inference of the instance of a key. Errors: RuntimeError naming the class of a key whose op
    is gone."""
    return _parsed(_core.inference_json(key))


def fake(key, inputs, fresh):
    """The outputs of slots `fresh` of a node on fake tensors."""
    known = inference(key)
    outputs = known.outputs([facts_of(tensor) for tensor in inputs])
    for slot in fresh:
        if outputs[slot] is None:
            raise ValueError(f"{key}: its calls leave output {slot} out; call the operator of that branch")
    return [
        torch.empty(outputs[slot].shape, dtype=outputs[slot].dtype, device=known.device(slot, inputs))
        for slot in fresh
    ]
