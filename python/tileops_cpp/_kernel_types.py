# SPDX-License-Identifier: Apache-2.0
"""Kernel types from Python: implementations that join an op's kernel interface beside the library's."""
import collections
import typing

from tileops_cpp import _core
from tileops_cpp._targets import _name_of

_call_specs = {}  # by interface and the fields' names


def register_kernel_type(
    op,
    name: str,
    build: typing.Callable,
    *,
    refusal: typing.Optional[typing.Callable] = None,
    identity: typing.Optional[typing.Callable] = None,
    devices: typing.Sequence[str] = ("cpu",),
    archs: typing.Sequence[str] = (),
    general: bool = False,
    preferred_over: typing.Sequence[str] = (),
    interface: typing.Optional[str] = None,
) -> None:
    """Adds an implementation to a kernel interface of ``op`` (an op class, or its name), for instances
    constructed later. It is selected, forced, explained and recorded under ``name`` as the library's
    own are, alone and inside composites, in eager calls and in compiled graphs.

    build(call): returns a function that computes calls, called as the op is (an absent input is None, a
        keyword-only one is left out) with every output by its name: it fills them and returns None. A
        member ``request_tune`` makes it tunable.
    refusal(call): None, or the reason (a str) why such a call is not served; left out, all are.
    identity(call): a value (None, number, str, dtype or tuple of them) that covers what changes the build;
        left out, the whole call.
    devices: of "cpu" and "cuda". archs: one of these is needed, such as "sm_90a"; goes with one device.
    general: below every other, and serves where none does. preferred_over: names of siblings that it wins
        over; where several serve a call and no preference decides, the call is AmbiguousSelectionError.
    interface: the kernel interface's name; needed where the op has several.

    ``call`` is the interface's call: an immutable tuple with names, of sizes, dtypes, parameters and the
    device, never contents. Choices are kept by it, so the functions must depend on nothing else. What they
    raise reaches the op's caller unchanged. They hold the GIL, and several threads may call them.
    Errors: ValueError for an unknown op, interface, device or sibling, a taken name, an op without kernels of
    its own; nothing changes then. TypeError for what cannot be called.
    """
    for role, function in (("build", build), ("refusal", refusal), ("identity", identity)):
        if not callable(function) and (function is not None or role == "build"):
            raise TypeError(f"{_name_of(op)}: {role} of {name} must be callable, got {function!r}")
    for role, names in (("devices", devices), ("archs", archs), ("preferred_over", preferred_over)):
        if isinstance(names, str):
            raise TypeError(f"{_name_of(op)}: {role} of {name} must be a sequence of str, got {names!r}")
    _core.register_kernel_type(
        _name_of(op),
        name,
        build,
        refusal,
        identity,
        list(devices),
        list(archs),
        general,
        list(preferred_over),
        interface or "",
    )


def unregister_kernel_type(op, name: str) -> None:
    """Takes a registered kernel type back; instances that were constructed with it keep it.
    Errors: ValueError where none of that name was registered."""
    _core.unregister_kernel_type(_name_of(op), name)


def _call_spec(interface, fields):
    key = (interface, *fields)
    made = _call_specs.get(key)
    if made is None:
        title = "".join(word.capitalize() for word in interface.split("_")) + "Call"
        made = _call_specs[key] = collections.namedtuple(title, fields)
    return made(**fields)


_core.set_call_spec(_call_spec)
