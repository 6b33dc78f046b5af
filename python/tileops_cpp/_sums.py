# SPDX-License-Identifier: Apache-2.0
"""Values of the spec's sum types: MGroupedLayout.masked(max_m=128), GatedActivation.silu_and_mul."""
import inspect
import json

from tileops_cpp import _core

classes = {}


class SumValue:
    """A value of a sum type: a constructor with named fields. Immutable and hashable."""

    __slots__ = ("constructor", "_fields")
    type = ""

    def __init__(self, constructor, fields):
        object.__setattr__(self, "constructor", constructor)
        object.__setattr__(self, "_fields", tuple(fields.items()))

    @property
    def fields(self):
        return dict(self._fields)

    def __getattr__(self, name):
        for field, value in object.__getattribute__(self, "_fields"):
            if field == name:
                return value
        raise AttributeError(f"{self!r} has no field {name}")

    def __setattr__(self, name, value):
        raise AttributeError(f"{self!r} is immutable")

    def __eq__(self, other):
        if not isinstance(other, SumValue):
            return NotImplemented
        return (self.type, self.constructor, self._fields) == (
            other.type,
            other.constructor,
            other._fields,
        )

    def __hash__(self):
        return hash((self.type, self.constructor, self._fields))

    def __repr__(self):
        fields = ", ".join(f"{name}={value!r}" for name, value in self._fields)
        return f"{self.type}.{self.constructor}({fields})"

    def __call__(self):
        """The value itself: a constructor without fields may be written with parentheses or not."""
        return self

    def __reduce__(self):
        return _make, (self.type, self.constructor, self.fields)


def default_of(declared):
    """The default of a parameter or field of the spec's JSON as Python has it."""
    value = declared.get("default", inspect.Parameter.empty)
    if isinstance(value, dict) and "constructor" in value:
        return _make(value["type"], value["constructor"], value["fields"])
    if isinstance(value, dict):
        return value["dtype"]
    return value


def signature_of(declared, extra=()):
    """A signature with the declared parameters, then those of `extra`."""
    kind = inspect.Parameter
    parameters = [
        kind(
            each["name"],
            kind.KEYWORD_ONLY if each.get("keyword_only") else kind.POSITIONAL_OR_KEYWORD,
            default=default_of(each),
        )
        for each in declared
    ]
    return inspect.Signature(sorted(parameters + list(extra), key=lambda each: each.kind))


def _constructor(cls, declared):
    name, fields = declared["name"], declared["fields"]
    if not fields:
        return cls(name, {})
    signature = signature_of(fields)

    def construct(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return cls(name, bound.arguments)

    construct.__name__ = name
    construct.__qualname__ = f"{cls.__name__}.{name}"
    construct.__module__ = cls.__module__
    construct.__signature__ = signature
    return staticmethod(construct)


def _make(type_name, constructor, fields):
    return classes[type_name](constructor, fields)


def load():
    """The classes of the sum types that are loaded now and were not before, by name."""
    fresh = {}
    for name, declared in json.loads(_core.types_json()).items():
        if declared["kind"] != "sum" or name in classes:
            continue
        cls = type(name, (SumValue,), {"__slots__": (), "type": name, "__module__": "tileops_cpp"})
        classes[name] = fresh[name] = cls
        for constructor in declared["constructors"]:
            setattr(cls, constructor["name"], _constructor(cls, constructor))
    return fresh


_core.set_sum_values(SumValue, _make)
