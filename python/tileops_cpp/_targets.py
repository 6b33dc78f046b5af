# SPDX-License-Identifier: Apache-2.0
"""Targets: named sets of third-party kernels that can serve an op whole; backends that bring them."""
import typing

from tileops_cpp import _core


class BuildRequest(typing.NamedTuple):
    """What a builder may read: facts and parameters, never contents."""

    op: str
    device: str
    inputs: tuple  # TensorFacts of every declared input; None for an absent one
    params: dict


class LoadFailure(typing.NamedTuple):
    """A backend library that failed to load."""

    path: str
    error: str


def register_target_builder(target: str, op, builder: typing.Callable) -> None:
    """Lets ``target`` serve ``op`` (an op class, or its name) whole.

    ``builder(request: BuildRequest)`` returns a function on a call's tensors, called as the op is: it
    fills a given ``out`` and returns it, and returns the outputs in the entry's order. It is kept for
    calls with the same facts; a member ``request_tune`` makes it tunable. What the builder raises
    reaches the caller unchanged; a result that cannot be called is OpNotAvailableError.
    Errors: ValueError for an unknown op or a pair that is registered already.
    """
    _core.register_target_builder(target, _name_of(op), builder)


def register_target_detector(target: str, detector: typing.Callable[[str], bool]) -> None:
    """Asks ``detector(device)`` whether the target claims a device ("cpu", "cuda:0").
    Errors: ValueError where one is registered already."""
    _core.register_target_detector(target, detector)


def unregister_target_builder(target: str, op) -> None:
    """Takes a builder back. Errors: ValueError where there is none."""
    _core.unregister_target_builder(target, _name_of(op))


def unregister_target_detector(target: str) -> None:
    """Takes a detector back. Errors: ValueError where there is none."""
    _core.unregister_target_detector(target)


def unregister_target(target: str) -> None:
    """Takes every registration of a target back. Errors: ValueError for an unknown target."""
    _core.unregister_target(target)


def target_names() -> typing.List[str]:
    """The known targets, sorted; builtin is not among them."""
    return _core.target_names()


def default_target() -> typing.Optional[str]:
    """The process default, asked before the detectors; None at the start."""
    return _core.default_target() or None


def set_default_target(target: typing.Optional[str]) -> None:
    """Errors: ValueError for an unknown target, naming the known ones."""
    _core.set_default_target(target or "")


def load_backend(path) -> None:
    """Loads one backend library now. Errors: BackendError; all of its registrations are undone."""
    _core.load_backend(str(path))


def load_backends() -> None:
    """Loads the backends of the search path (TILEOPS_BACKEND_PATH), once per process."""
    _core.load_backends()


def loaded_backends() -> typing.List[str]:
    """Paths of the backends that are loaded, in load order."""
    return _core.loaded_backends()


def load_failures() -> typing.List[LoadFailure]:
    """The backend libraries that failed to load, with their errors."""
    return [LoadFailure(*failure) for failure in _core.load_failures()]


def _name_of(op):
    return op if isinstance(op, str) else op.spec_name


_core.set_build_request(BuildRequest)
