# SPDX-License-Identifier: Apache-2.0
"""Spec files of one's own."""
import os
import typing

from tileops_cpp import _core, _sums

Diagnostic = _core.Diagnostic


def load_spec(path) -> typing.List[str]:
    """Loads every entry (and type) of a spec file, all or none; returns the entries' names. The same
    file again is a no-op. Errors: OSError, SpecError (the first fault, with its code and place)."""
    names = _core.load_spec_file(os.fspath(path))
    _publish()
    return names


def load_spec_text(text: str, source: str = "<text>") -> typing.List[str]:
    """The same for a text; ``source`` names it in messages."""
    names = _core.load_spec_text(text, source)
    _publish()
    return names


def validate_spec(path) -> typing.List[Diagnostic]:
    """What is wrong with a spec file, compositions held against the classes that are declared."""
    with open(path, encoding="utf-8") as file:
        return _core.validate_spec(file.read(), os.fspath(path))


def _publish():
    import tileops_cpp

    for name, cls in _sums.load().items():
        setattr(tileops_cpp, name, cls)
