# SPDX-License-Identifier: Apache-2.0
"""Op: the base class of every op object."""
import sys

from tileops_cpp import _core


def _never():
    return False


# Whether a call is being traced by torch.compile, and what it does then; tileops_cpp.compile sets both.
is_compiling = _never


def _enable_torch():
    """Loads the torch half once torch is in the process."""
    if is_compiling is _never and "torch" in sys.modules:
        try:
            from tileops_cpp import compile as _  # noqa: F401
        except ImportError:
            pass


def options(target, implementation, device, validate_inputs, kernel_config):
    made = _core.OpOptions()
    made.target = target or ""
    made.implementation = implementation or ""
    made.device = "" if device is None else str(device)
    made.validate_inputs = validate_inputs
    made.kernel_config = kernel_config or {}
    return made


class Op:
    """A callable object with a spec. Thread safety: one instance may be called from several threads."""

    def _bind(self, handle):
        _enable_torch()
        self._handle = handle
        self._call = handle.caller()

    def __call__(self, *args, **kwargs):
        if is_compiling():
            return self._traced(*args, **kwargs)
        return self._call(*args, **kwargs)

    def _traced(self, *args, **kwargs):
        raise NotImplementedError  # tileops_cpp.compile sets it with is_compiling

    @property
    def key(self):
        """Names this instance in traced graphs; never handed out again."""
        return self._handle.key

    @property
    def name(self):
        """The name of the op's spec entry."""
        return self._handle.name

    @property
    def params(self):
        """The parameters by name, defaults filled in."""
        return self._handle.params

    def trace(self, *args, **kwargs):
        """The graph of leaf calls that a call with tensors of these facts makes."""
        return self._handle.trace(*args, **kwargs)

    def __repr__(self):
        values = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        return f"{type(self).__name__}({values})"
