# SPDX-License-Identifier: Apache-2.0
"""What torch.compile sees of an op: its leaves, as operators, and never a composite (docs/compile.md).

Traced by Dynamo, a call asks the library for the plan of its leaf calls, which the C++ trace of
``forward`` makes on tensors of the same facts, and makes those calls. What the forwards depended on
becomes guards on the sizes, so that the plan holds for every call that the graph serves.
"""
import functools
import json
import typing

import torch
from torch._dynamo.comptime import comptime

from tileops_cpp import _core, _op, _tensors, fakes, torch_ops


class CallSlots(typing.NamedTuple):
    """Where the arguments of an op's calls go."""

    inputs: tuple  # names
    positional: tuple  # slots
    outs: tuple  # names of the outputs that take a buffer
    takes_out: bool  # `out` stands for the one buffer
    dropped: tuple  # per output, whether the parameters alone decide that it is there


@functools.cache
def _slots_of(op_class):
    slots = _core.call_slots(op_class)
    return CallSlots(*(_frozen(slots[field]) for field in CallSlots._fields))


def _frozen(value):
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _bind(op_class, slots, args, kwargs):
    """The arguments in the order of the signature, and the given buffers. Errors: TypeError."""
    if len(args) > len(slots.positional):
        names = ", ".join([slots.inputs[i] for i in slots.positional])
        raise TypeError(
            f"{op_class}: takes {len(slots.positional)} tensors by position ({names}), got {len(args)}"
        )
    inputs = [None] * len(slots.inputs)
    outs = [None] * len(slots.outs)
    for slot, value in zip(slots.positional, args):
        inputs[slot] = value
    by_position = slots.positional[: len(args)]
    for name, value in kwargs.items():
        if name in slots.inputs:
            slot = slots.inputs.index(name)
            if slot in by_position:
                raise TypeError(f"{op_class}: got {name} by position and by name")
            inputs[slot] = value
        elif name in slots.outs:
            outs[slots.outs.index(name)] = value
        elif name == "out" and slots.takes_out:
            outs[0] = value
        else:
            known = ", ".join(slots.inputs + slots.outs)
            raise TypeError(f"{op_class}: it takes no tensor {name}; it takes: {known}")
    return inputs, outs


class Node(typing.NamedTuple):
    """A leaf call; tensors are numbers of values."""

    operator: str
    key: str
    inputs: tuple  # -1: absent
    outs: tuple  # (name, value)
    fresh: tuple


class Plan(typing.NamedTuple):
    """The leaf calls that an op's call makes."""

    num_values: int
    inputs: tuple
    outs: tuple
    nodes: tuple
    results: tuple


def _node(node):
    branch = torch_ops.branch_of(node["name"])
    values = dict(zip(_slots_of(branch.op_class).outs, node["outs"]))
    return Node(
        branch.operator,
        node["key"],
        tuple(node["inputs"]),
        tuple((name, values[name]) for name in branch.outs),
        tuple(node["outputs"][slot] for slot in branch.fresh),
    )


def _plan_of(graph):
    return Plan(
        len(graph["values"]),
        tuple(graph["inputs"]),
        tuple(graph["outs"]),
        tuple(_node(node) for node in graph["nodes"]),
        tuple(graph["results"]),
    )


def _hint(size):
    """The size that a symbol stands for while the graph is made."""
    if isinstance(size, int):
        return size
    if not size.node.has_hint():
        raise ValueError(
            f"the size {size} depends on data, so that the plan of the call is not known; compile a part "
            "that takes the tensor as an input"
        )
    return size.node.hint


def _meta(tensor):
    """A tensor of the same facts without contents, as the library's."""
    if tensor is None:
        return None
    name = fakes.DTYPE_NAMES.get(tensor.dtype)
    if name is None:
        raise TypeError(f"a tensor of {tensor.dtype} cannot be taken")
    sizes, strides = map(_hint, tensor.shape), map(_hint, tensor.stride())
    return _tensors.Tensor._meta(list(sizes), list(strides), name)


def _device_of(tensors):
    devices = [t.device for t in tensors if t is not None and t.device.type not in ("cpu", "meta")]
    return str(devices[0]) if devices else "cpu"


def _facts_by_value(graph, tensors):
    """The facts of every value, over the symbols of the inputs' sizes."""
    facts = [None] * len(graph["values"])

    def at(values):
        return [None if value < 0 else facts[value] for value in values]

    for value, tensor in zip(graph["inputs"] + graph["outs"], tensors):
        if value >= 0:
            facts[value] = fakes.facts_of(tensor)
    for node in graph["nodes"]:
        outputs = fakes.inference(node["key"]).outputs(at(node["inputs"]))
        for value, output in zip(node["outputs"], outputs):
            if value >= 0 and facts[value] is None:
                facts[value] = output
    return at


def _guard(graph, tensors):
    """Holds the graph's sizes to what its forwards depended on."""
    if not graph["assumptions"]:
        return
    at = _facts_by_value(graph, tensors)
    for assumption in graph["assumptions"]:
        inputs = at(assumption["inputs"])
        if assumption["tree"] is None:
            for tensor in filter(None, inputs):
                for size in tensor.shape:
                    _hold(size, _hint(size))
        else:
            env = fakes.inference(assumption["key"]).env(inputs)
            _hold(env.evaluate(assumption["tree"]), assumption["value"])


def _hold(found, value):
    """Guards that `found`, a size or a predicate, has this value, as it has now."""
    is_predicate = isinstance(found, (bool, torch.SymBool))
    if (bool(found) != bool(value)) if is_predicate else (found != value):
        raise AssertionError(f"{found} is not {value}, though the trace found it so")


def trace(key, inputs, outs):
    """The plan of a call on these (fake) tensors. Errors: those of the trace."""
    outs = list(outs) if any(out is not None for out in outs) else []
    tensors = [*inputs, *outs]
    metas = [_meta(tensor) for tensor in tensors]
    text = _core.trace_json(key, metas[: len(inputs)], metas[len(inputs) :], _device_of(tensors))
    graph = json.loads(text)
    _guard(graph, tensors)
    return _plan_of(graph)


# What Dynamo knows of the tensors of the call that it traces now (it compiles under one lock).
_noted = []


def _note(tensor):
    def note(ctx):
        variable = ctx.get_local("tensor")
        _noted.append(None if variable.is_python_constant() else variable.as_fake())

    comptime(note)


def _forget():
    comptime(lambda ctx: _noted.clear())


@torch.compiler.assume_constant_result
def _noted_plan(key, num_inputs):
    """The plan, or the fault that keeps it from being made: it is raised where the user's code is."""
    try:
        return trace(key, _noted[:num_inputs], _noted[num_inputs:]), None
    except (ValueError, TypeError, RuntimeError) as error:
        return None, (type(error).__name__, str(error))
    except Exception as error:  # of Python's code in the call, which gets tensors of the library
        name = key.partition("#")[0]
        reason = f"{name}: its call does more than call sub-ops, so that it cannot be traced"
        return None, ("RuntimeError", f"{reason}: {type(error).__name__}: {error}")
    finally:
        _noted.clear()


@torch.compiler.assume_constant_result
def _constant_slots(op_class):
    return _slots_of(op_class)


# Classes that a fault of a trace is raised as.
_FAULTS = {"ValueError": ValueError, "TypeError": TypeError}


def _check_grad(op_class, name, tensor):
    if tensor is not None and tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{op_class}: {name} requires grad, and the op has no backward; call it under "
            f"torch.no_grad(), or pass {name}.detach()"
        )


def _run(plan, inputs, outs, dropped):
    values = [None] * plan.num_values
    for value, tensor in zip(plan.inputs + plan.outs, inputs + outs):
        if value >= 0:
            values[value] = tensor
    for node in plan.nodes:
        given = [None if value < 0 else values[value] for value in node.inputs]
        buffers = {name: values[value] for name, value in node.outs}
        made = torch_ops.overloads[node.operator](node.key, *given, **buffers)
        if len(node.fresh) == 1:
            values[node.fresh[0]] = made
        elif node.fresh:
            for value, tensor in zip(node.fresh, made):
                values[value] = tensor
    results = [
        None if value < 0 else values[value]
        for value, is_dropped in zip(plan.results, dropped)
        if value >= 0 or not is_dropped
    ]
    return results[0] if len(results) == 1 else tuple(results)


@torch.compiler.assume_constant_result
def _whole_fault(key, device):
    """What keeps a composite of Python's from being traced."""
    try:
        return _core.check_composition_serves(key, device)
    except _core.OpNotAvailableError as error:
        return str(error)


def _traced_forward(op, args, kwargs):
    """The call of a composite written in Python: Dynamo traces its forward as any function."""
    devices = [x.device.type for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    fault = _whole_fault(op._key, "cuda" if "cuda" in devices else "cpu")
    if fault is not None:
        raise RuntimeError(fault)
    return op.forward(*args, **kwargs)


@torch.compiler.assume_constant_result
def _hold_delegate(key, stage, identity, params):
    """Holds the sub-op while the graph is made, and names the attribute where a trace finds it."""
    op = _op._instances[key]
    name = f"_traced_{stage}_{identity}"
    setattr(op, name, op.delegate_for(stage, identity, **dict(params)))
    return name


def traced_delegate(self, stage, identity, given, params):
    """delegate_for in a forward of Python's: an identity of the call is a constant of its graph."""
    if given is not None:
        raise RuntimeError(f"{self.spec_name}: a sub-op is injected where the op is constructed")
    return getattr(self, _hold_delegate(self._key, stage, identity, tuple(params.items())))


def traced(self, *args, **kwargs):
    """A call of an op while it is compiled."""
    op_class = self.spec_name
    if len(self.delegate_types) > 0 and hasattr(type(self), "forward"):
        return _traced_forward(self, args, kwargs)
    slots = _constant_slots(op_class)
    inputs, outs = _bind(op_class, slots, args, kwargs)
    _forget()
    for name, tensor in zip(slots.inputs + slots.outs, inputs + outs):
        _check_grad(op_class, name, tensor)
        _note(tensor)
    if torch.compiler.is_dynamo_compiling():
        plan, fault = _noted_plan(self._key, len(inputs))
        if fault is not None:
            raise _FAULTS.get(fault[0], RuntimeError)(fault[1])
    else:
        plan = trace(self._key, inputs, outs)
    return _run(plan, inputs, outs if plan.outs else [], slots.dropped)
